# trident_mpi_test(NAME SOURCES ... LINKS ... JOBS "RANKS [ARGUMENT...]" ... [TIMEOUT s])
#   -> executable test_NAME, whose main() is tests/mpi/mpi_test_main.cpp, and per job one CTest entry NAME/<ranks>ranks<arguments>,
#      labelled mpi: the whole executable once under mpirun (scripts/mpirun_local).
#
# A job fails if any of its ranks does. It is SKIPPED where there is no mpirun and in sanitized builds: Open MPI itself leaks and races.
function(trident_mpi_test name)
  cmake_parse_arguments(arg "" "TIMEOUT" "SOURCES;LINKS;JOBS" ${ARGN})
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 300)
  endif()
  add_executable(test_${name} ${arg_SOURCES})
  set_target_properties(test_${name} PROPERTIES TRIDENT_TEST -O1)
  target_link_libraries(test_${name} PRIVATE trident_mpi_test_main ${arg_LINKS})
  trident_ci_label(${name} label)
  foreach(job IN LISTS arg_JOBS)
    separate_arguments(words UNIX_COMMAND ${job})
    list(POP_FRONT words ranks)
    string(REGEX REPLACE "[^A-Za-z0-9]+" "_" arguments "${words}")
    trident_launched_test(${name}/${ranks}ranks${arguments} TIMEOUT ${arg_TIMEOUT}
      COMMAND ${PROJECT_SOURCE_DIR}/scripts/mpirun_local ${ranks} $<TARGET_FILE:test_${name}> ${words})
  endforeach()
endfunction()

# trident_launched_test(NAME COMMAND ... TIMEOUT s): a CTest entry of a command that runs mpirun. Exit status 77: skipped.
function(trident_launched_test name)
  cmake_parse_arguments(arg "" "TIMEOUT" "COMMAND" ${ARGN})
  if(TRIDENT_SANITIZE)
    set(arg_COMMAND ${CMAKE_COMMAND} -E echo "SKIPPED: Open MPI does not run cleanly under sanitizers")
  endif()
  add_test(NAME ${name} COMMAND ${arg_COMMAND})
  set_tests_properties(${name} PROPERTIES TIMEOUT ${arg_TIMEOUT} LABELS mpi PROCESSORS 2 COST 500 SKIP_RETURN_CODE 77 SKIP_REGULAR_EXPRESSION "^SKIPPED")
endfunction()
