# Writes OUTPUT, a file that includes HEADER and defines the functions which that declares: each of NAMES returns the text of the
# file at the same place of FILES.
set(code "#include \"${HEADER}\"\n\nnamespace trident {\n")
foreach(name file IN ZIP_LISTS NAMES FILES)
  file(READ ${file} text)
  string(APPEND code "\nstd::string_view ${name}() {\n  return R\"-raw-text-(${text})-raw-text-\";\n}\n")
endforeach()
string(APPEND code "\n}  // namespace trident\n")
file(WRITE ${OUTPUT} "${code}")
