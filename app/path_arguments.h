// Files that a command is given by name: those that it reads, and those that it writes in place of what is there.
#pragma once

#include <initializer_list>
#include <string>
#include <vector>

#include "app/command_line.h"

namespace trident {

struct NamedFile {
  std::string flag;  // that names it; or whatever else does: "config of study.json"
  std::string path;
};

// Where the running program lies.
std::string folder_of_program();

// The path of a file that comes with the program, in its package or in the checkout below which it was built, `name`
// itself in the folder that has it, "" where it is not there.
std::string beside_program(const std::string& name);

// Whether a --cluster with this value names a file, rather than one of the clusters that come with the program.
bool is_file_of_cluster(const std::string& name_or_path);

// Flags of `reads` and `writes` that were given name one file each; `also_read` are named by those. Before any work, refuses
// (ConfigError) an empty name, a file to write that is also one to read, and two to write that are one: links, dots and relative
// paths do not make them two.
void check_named_files(const CLI::App& app, std::initializer_list<const char*> reads, std::initializer_list<const char*> writes,
                       const std::vector<NamedFile>& also_read = {});

}  // namespace trident
