// Regular expressions of tokenizers: what is read of them, and the matcher that runs them.
//
// docs/patterns.md lists what is known. Groups capture nothing, for pieces need only the whole match.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizer/char_set.h"
#include "data/tokenizer/piece_scanner.h"

namespace trident {

enum class RepeatKind : std::uint8_t { kGreedy, kLazy, kPossessive };
enum class Anchor : std::uint8_t { kTextBegin, kTextEnd, kTextEndOrLastLine, kLineBegin, kLineEnd };

struct PatternNode {
  enum class Kind : std::uint8_t { kSet, kAnchor, kSequence, kAlternatives, kRepeat, kAtomic, kLook };
  static constexpr std::uint32_t kNoMax = UINT32_MAX;

  Kind kind = Kind::kSequence;
  std::vector<PatternNode> parts{};           // the last three have one
  std::size_t set = 0;                        // of Pattern::sets
  std::uint32_t min = 0, max = kNoMax;        // times
  RepeatKind repeat = RepeatKind::kGreedy;
  Anchor anchor = Anchor::kTextBegin;
  bool behind = false, negative = false;

  static constexpr std::uint64_t kNoEnd = std::uint64_t{1} << 32;
  struct Lengths {
    std::uint64_t least, most;  // at most kNoEnd
    bool are_one() const { return least == most && most < kNoEnd; }
  };
  Lengths lengths() const;  // of its matches, in code points
};

struct Pattern {
  PatternNode root;
  std::vector<CharSet> sets;
};

// Refuses as piece_scanner() does.
Pattern parse_pattern(std::string_view text, std::string_view where, PatternDialect dialect);

// A pattern as instructions.
class PatternProgram {
 public:
  PatternProgram(const Pattern& pattern, std::string_view text, std::string_view where);  // both for errors

  // A run over one text.
  class Matcher {
   public:
    Matcher(const PatternProgram& program, std::string_view text) : program_(program), text_(text) {}
    // The end of the match that begins at `begin`, in the order of backtracking.
    std::optional<std::size_t> match_at(std::size_t begin);
    std::uint64_t num_steps() const { return steps_; }

   private:
    struct Frame {
      std::uint32_t at;         // the instruction with which it goes on
      std::uint32_t left;       // of a lazy run: how many more characters it may take
      std::size_t low, high;    // of a greedy run: the shortest and the longest end that are left; else one place
      bool is_run() const { return left > 0 || high > low; }
    };
    std::optional<std::size_t> run(std::uint32_t at, std::size_t place);
    bool take_run(std::uint32_t at, std::size_t* place);
    bool back_out(std::size_t base, std::uint32_t* at, std::size_t* place);
    bool holds(Anchor anchor, std::size_t place) const;
    void push(const Frame& frame);
    void count(std::uint64_t steps);
    [[noreturn]] void give_up(const std::string& what) const;

    const PatternProgram& program_;
    const std::string_view text_;
    std::vector<Frame> frames_;
    std::uint64_t steps_ = 0;
    std::size_t covered_ = 0;
  };

 private:
  enum class Op : std::uint8_t { kSet, kRun, kSplit, kJump, kAnchor, kAtomic, kLook, kBack, kDone };
  struct Instruction {
    Op op;
    RepeatKind repeat = RepeatKind::kGreedy;
    Anchor anchor = Anchor::kTextBegin;
    bool negative = false;
    std::uint32_t to = 0;             // kSplit: the second choice; kJump; kAtomic, kLook: what follows
    std::uint32_t set = 0;            // kSet, kRun
    std::uint32_t min = 0, max = 0;   // kRun; kBack: min code points
  };
  std::uint32_t emit(const Instruction& instruction);
  void compile(const PatternNode& node);
  void compile_alternatives(const PatternNode& node, bool behind);
  void compile_repeat(const PatternNode& node);
  std::uint32_t here() const { return static_cast<std::uint32_t>(instructions_.size()); }

  std::string text_, where_;
  std::vector<CharSet> sets_;
  std::vector<Instruction> instructions_;
};

}  // namespace trident
