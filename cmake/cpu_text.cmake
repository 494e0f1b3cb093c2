# Writes OUTPUT: the text of PROFILE as shipped_cpu_text() of planner/price/cpu_rates.h.
# In pieces: compilers limit the length of one.
file(READ ${PROFILE} text)
string(LENGTH "${text}" length)
set(code "#include \"planner/price/cpu_rates.h\"\n\nnamespace trident {\n\nstd::string_view shipped_cpu_text() {\n  return\n")
set(at 0)
while(at LESS length)
  string(SUBSTRING "${text}" ${at} 8000 piece)
  string(APPEND code "R\"json(${piece})json\"\n")
  math(EXPR at "${at} + 8000")
endwhile()
string(APPEND code ";\n}\n\n}  // namespace trident\n")
file(WRITE ${OUTPUT} "${code}")
