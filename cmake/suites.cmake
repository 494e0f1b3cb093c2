# Included by CTest before it runs tests. A test suite is one entry, because a process per test case costs more than most cases do.
#
# trident_suites(NAME EXECUTABLE LABELS TIMEOUT FULL WAITS)   -> entries NAME/SUITE; if FULL, without suites that begin with Full
function(trident_suites name executable labels timeout full waits)
  set(list "${executable}.suites")
  if(NOT EXISTS "${executable}")
    set(suites NotBuilt)
  elseif("${executable}" IS_NEWER_THAN "${list}")
    execute_process(COMMAND "${executable}" --gtest_list_tests OUTPUT_VARIABLE suites RESULT_VARIABLE status TIMEOUT 120)
    string(REPLACE ";" " " suites "${suites}")
    string(REGEX MATCHALL "(^|\n)[A-Za-z0-9_/]+\\.[^\n]*\n  " suites "${suites}")
    list(TRANSFORM suites REPLACE "^\n?([^.\n]+).*" "\\1")
    if(NOT status EQUAL 0 OR NOT suites)
      set(suites CannotBeListed)  # a suite that lost its tests must not pass unnoticed
    else()
      file(WRITE "${list}" "${suites}")
    endif()
  else()
    file(READ "${list}" suites)
  endif()
  if(full)
    list(FILTER suites EXCLUDE REGEX "^Full")
  endif()
  cmake_host_system_information(RESULT cores QUERY NUMBER_OF_LOGICAL_CORES)
  foreach(suite IN LISTS suites)
    add_test("${name}/${suite}" "${executable}" "--gtest_filter=${suite}.*")
    # The longest are begun first. CTest calls an entry skipped only if all of its cases were.
    set_tests_properties("${name}/${suite}" PROPERTIES LABELS "${labels}" TIMEOUT ${timeout} COST ${timeout}
      FAIL_REGULAR_EXPRESSION "Running 0 tests from 0 test suites"
      SKIP_REGULAR_EXPRESSION "  PASSED  . 0 tests\\.\n.  SKIPPED . [0-9]+ tests?, listed below:\n(.  SKIPPED . [^\n]*\n)+$")
    # Suites that mostly wait take turns, as many at once as half the cores, so that others compute meanwhile.
    if(waits)
      string(LENGTH "${suite}" turn)
      math(EXPR turn "${turn} % ((${cores} + 1) / 2)")
      set_tests_properties("${name}/${suite}" PROPERTIES RESOURCE_LOCK waits_${turn} COST 1000)
    endif()
  endforeach()
endfunction()
