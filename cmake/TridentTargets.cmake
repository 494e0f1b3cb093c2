# trident_library(NAME SOURCES ... LINKS ...)   -> target trident_NAME, include root = repository root
# trident_room(NAME SOURCE...)   -> target trident_NAME, which links the rooms of its row in cmake/rooms; room_NAME tries it
# trident_test(NAME SOURCES ... LINKS ... [TIMEOUT s] [LABEL l] [FULL] [WAITS] [WHOLE])   -> executable test_NAME, a CTest entry
#   NAME/SUITE per test suite, labelled l or by its folder below tests/, and ci or elsewhere; FULL: suites that begin with Full are
#   one entry of -C Full; WAITS: for timers and launchers, most of the time; WHOLE: one entry NAME/Whole

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()

find_program(TRIDENT_CCACHE ccache)
if(TRIDENT_CCACHE)
  # ccache asks for this where headers are precompiled: they stand for their texts, and none of them says when it was compiled.
  string(JOIN "," trident_sloppiness $ENV{CCACHE_SLOPPINESS} pch_defines time_macros)
  set(CMAKE_CXX_COMPILER_LAUNCHER env CCACHE_SLOPPINESS=${trident_sloppiness} ${TRIDENT_CCACHE})
endif()

# Thirty sources compiled as one read and instantiate once what they share, which is most of what compiling them costs. Names in
# anonymous namespaces are therefore unique within a target; sources that cannot be joined are named by trident_compiled_alone.
option(TRIDENT_JOIN_SOURCES "Compile sources thirty at a time" OFF)
set(CMAKE_UNITY_BUILD ${TRIDENT_JOIN_SOURCES})
set(CMAKE_UNITY_BUILD_BATCH_SIZE 32)

# The run path of what is built is that of what is installed: CMake pads the former with an empty element, which means "the working directory".
set(CMAKE_BUILD_WITH_INSTALL_RPATH ON)
set(CMAKE_INSTALL_RPATH_USE_LINK_PATH ON)

add_library(trident_options INTERFACE)
target_include_directories(trident_options INTERFACE ${PROJECT_SOURCE_DIR})
target_compile_options(trident_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra>)
# Off for compilers that the checks of every change do not use: what a newer one warns of must not end a user's build.
set(trident_werror OFF)
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  set(trident_werror ON)
endif()
option(TRIDENT_WERROR "Warnings are errors" ${trident_werror})
if(TRIDENT_WERROR)
  target_compile_options(trident_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Werror> $<$<COMPILE_LANGUAGE:CUDA>:--Werror=all-warnings>)
endif()
target_link_options(trident_options INTERFACE LINKER:-z,relro,-z,now)
if(NOT TRIDENT_SANITIZE)  # sanitizers check more, and miss what these replace
  set(trident_unoptimized $<OR:$<CONFIG:Debug>,$<STREQUAL:$<TARGET_PROPERTY:TRIDENT_TEST>,-O0>>)
  target_compile_options(trident_options INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:-fstack-protector-strong;$<$<NOT:${trident_unoptimized}>:-U_FORTIFY_SOURCE;-D_FORTIFY_SOURCE=3>>)
endif()
if(TRIDENT_SANITIZE)
  target_compile_options(trident_options INTERFACE -fsanitize=${TRIDENT_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  # These checks take a quarter of compiling the tests' own sources; the address sanitizer sees null and foreign pointers as well.
  # The compiler does not optimize code that a test runs once: that takes as long as the rest of compiling it.
  if(TRIDENT_SANITIZE MATCHES undefined)
    target_compile_options(trident_options INTERFACE $<$<BOOL:$<TARGET_PROPERTY:TRIDENT_TEST>>:-fno-sanitize=null,vptr,alignment>
      $<$<IN_LIST:$<TARGET_PROPERTY:TRIDENT_TEST>,-O0$<SEMICOLON>-O1>:-O0>)
  endif()
  target_link_options(trident_options INTERFACE -fsanitize=${TRIDENT_SANITIZE})
  if(TRIDENT_SANITIZE MATCHES thread)
    target_compile_definitions(trident_options INTERFACE TRIDENT_TSAN=1)
    target_compile_options(trident_options INTERFACE -Wno-tsan)  # std::atomic_thread_fence is not modelled; we use none
  endif()
endif()

if(TRIDENT_FUZZ)  # what guides libFuzzer; its main() is linked to the programs of tests/fuzz alone
  target_compile_options(trident_options INTERFACE -fsanitize=fuzzer-no-link)
endif()

# Code that a test runs once takes longer to compile than to run: it compiles in two thirds of the time without optimization. Tests
# of arithmetic loop, and so do simulated kernels and scalar references, which libraries of the tests hold at -O3.
target_compile_options(trident_options INTERFACE
  $<$<AND:$<CONFIG:Release>,$<BOOL:$<TARGET_PROPERTY:TRIDENT_TEST>>>:$<$<COMPILE_LANGUAGE:CXX>:$<TARGET_PROPERTY:TRIDENT_TEST>>>)

# gcc 12's address sanitizer gives stack frames 32-byte alignment where 64-byte vectors live: files of such vectors go without its
# instrumentation of the stack (heap and globals stay checked).
set(TRIDENT_WIDE_VECTOR_OPTIONS "")
if(TRIDENT_SANITIZE MATCHES address)
  set(TRIDENT_WIDE_VECTOR_OPTIONS "--param=asan-stack=0")
endif()

# Sources that are never joined with others: those that replace operator new, those whose classes of external linkage have members
# of types of an anonymous namespace (a file that is compiled by itself may), and those with many names of another's.
function(trident_compiled_alone)
  set_source_files_properties(${ARGN} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
endfunction()

function(trident_library name)
  cmake_parse_arguments(arg "" "" "SOURCES;LINKS" ${ARGN})
  add_library(trident_${name} STATIC ${arg_SOURCES})
  target_link_libraries(trident_${name} PUBLIC trident_options ${arg_LINKS})
endfunction()

# The library of a room of cmake/rooms, which links the rooms of its row.
set_property(DIRECTORY ${PROJECT_SOURCE_DIR} APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/cmake/rooms)
file(STRINGS ${PROJECT_SOURCE_DIR}/cmake/rooms trident_room_rows REGEX "^[a-z+!]")
file(WRITE ${PROJECT_BINARY_DIR}/room.cpp "int main() {}\n")
function(trident_room name)
  set(links)
  foreach(row IN LISTS trident_room_rows)
    string(REGEX MATCHALL "[^ ]+" words ${row})
    list(POP_FRONT words room)
    if(room STREQUAL "!")
      list(POP_FRONT words current target)
      set(words ${target})
    elseif(NOT room STREQUAL "+")
      set(current ${room})
      list(POP_FRONT words folders)
    endif()
    if(current STREQUAL name)
      list(APPEND links ${words})
    endif()
  endforeach()
  list(REMOVE_ITEM links -)
  list(TRANSFORM links PREPEND trident_)
  trident_library(${name} SOURCES ${ARGN} LINKS ${links})
  # The whole room linked against its row alone, so that a call upward is an error here and not a matter of what else is linked.
  if(TRIDENT_TESTS AND NOT TRIDENT_SANITIZE)
    add_executable(room_${name} ${PROJECT_BINARY_DIR}/room.cpp)
    target_link_libraries(room_${name} PRIVATE $<LINK_LIBRARY:WHOLE_ARCHIVE,trident_${name}>)
    target_link_options(room_${name} PRIVATE -s)
  endif()
endfunction()

# A table of docs/design/testing.md says in which flavours of scripts/test.sh, which are presets, each test executable runs.
set(trident_flavour_page ${PROJECT_SOURCE_DIR}/docs/design/testing.md)
set_property(DIRECTORY ${PROJECT_SOURCE_DIR} APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${trident_flavour_page})
file(STRINGS ${trident_flavour_page} trident_flavour_rows REGEX "^\\| [a-z0-9_ ]+ \\| (release|asan|tsan)[a-z ]* \\|")
foreach(row IN LISTS trident_flavour_rows)
  string(REGEX MATCH "^\\| ([a-z0-9_ ]+) \\| ([a-z ]+) \\|" row "${row}")
  separate_arguments(flavours UNIX_COMMAND "${CMAKE_MATCH_2}")
  separate_arguments(names UNIX_COMMAND "${CMAKE_MATCH_1}")
  foreach(name IN LISTS names)
    set(trident_flavours_of_${name} ${flavours})
  endforeach()
endforeach()
set(trident_flavour release)
if(TRIDENT_SANITIZE MATCHES thread)
  set(trident_flavour tsan)
elseif(TRIDENT_SANITIZE)
  set(trident_flavour asan)
endif()

# Into RESULT the label by which scripts/test.sh takes the tests of test_NAME in this build (ci), or leaves them to another flavour.
function(trident_ci_label name result)
  if(NOT DEFINED trident_flavours_of_${name})
    message(FATAL_ERROR "docs/design/testing.md does not say in which flavours test_${name} runs: add it to a row of its table")
  endif()
  if(trident_flavour IN_LIST trident_flavours_of_${name})
    set(${result} ci PARENT_SCOPE)
  else()
    set(${result} elsewhere PARENT_SCOPE)
    set_target_properties(test_${name} PROPERTIES TRIDENT_ELSEWHERE ON)
  endif()
endfunction()

# Continuous integration builds the target ci: without sanitizers all programs but the tests of other flavours, with them the tests of
# the flavour alone. Libraries that none of these link are not built.
function(trident_ci_targets folder)
  get_property(folders DIRECTORY ${folder} PROPERTY SUBDIRECTORIES)
  foreach(below IN LISTS folders)
    trident_ci_targets(${below})
  endforeach()
  get_property(targets DIRECTORY ${folder} PROPERTY BUILDSYSTEM_TARGETS)
  foreach(target IN LISTS targets)
    get_target_property(type ${target} TYPE)
    get_target_property(by_hand ${target} EXCLUDE_FROM_ALL)
    get_target_property(elsewhere ${target} TRIDENT_ELSEWHERE)
    if(type MATCHES "EXECUTABLE|SHARED|MODULE" AND NOT by_hand AND NOT elsewhere
        AND (target MATCHES "^test_" OR NOT TRIDENT_SANITIZE))
      add_dependencies(ci ${target})
    endif()
  endforeach()
endfunction()

# Headers that nearly every test reads are compiled once for each level of optimization. Clang's tools do not read gcc's.
function(trident_test_headers target optimization)
  if(NOT CMAKE_CXX_COMPILER_ID STREQUAL GNU)
    return()
  endif()
  set(common trident_test_headers${optimization})
  if(NOT TARGET ${common})
    add_library(${common} OBJECT EXCLUDE_FROM_ALL ${PROJECT_BINARY_DIR}/room.cpp)
    set_target_properties(${common} PROPERTIES TRIDENT_TEST ${optimization})
    target_link_libraries(${common} PRIVATE trident_options GTest::gtest fmt::fmt)
    target_precompile_headers(${common} PRIVATE <gtest/gtest.h> <fmt/format.h> <algorithm> <array> <atomic> <chrono> <cmath>
      <cstring> <filesystem> <fstream> <functional> <map> <memory> <numeric> <optional> <random> <set> <span> <sstream> <string>
      <thread> <variant> <vector>)
  endif()
  target_precompile_headers(${target} REUSE_FROM ${common})
endfunction()

function(trident_test name)
  cmake_parse_arguments(arg "FULL;WAITS;WHOLE" "TIMEOUT;LABEL" "SOURCES;LINKS" ${ARGN})
  add_executable(test_${name} ${arg_SOURCES})
  file(RELATIVE_PATH folder ${PROJECT_SOURCE_DIR}/tests ${CMAKE_CURRENT_SOURCE_DIR})
  set(optimization -O0)
  if(folder MATCHES "^(conformance|contracts|cuda|device|model|optim|oracle|parallel|tensor_parallel)")
    set(optimization -O1)
  endif()
  set_target_properties(test_${name} PROPERTIES TRIDENT_TEST ${optimization})
  target_link_libraries(test_${name} PRIVATE ${arg_LINKS} GTest::gtest_main)
  trident_test_headers(test_${name} ${optimization})
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 300)
  endif()
  if(TRIDENT_SANITIZE)
    math(EXPR arg_TIMEOUT "5 * ${arg_TIMEOUT}")
  endif()
  if(NOT arg_LABEL)
    file(RELATIVE_PATH arg_LABEL ${PROJECT_SOURCE_DIR}/tests ${CMAKE_CURRENT_SOURCE_DIR})
    string(REGEX REPLACE "/.*" "" arg_LABEL ${arg_LABEL})
  endif()
  trident_ci_label(${name} label)
  if(arg_WHOLE)  # one process, because the program asks at its end what its tests have run
    add_test(NAME ${name}/Whole COMMAND test_${name} --gtest_filter=*)
    set_tests_properties(${name}/Whole PROPERTIES LABELS "${arg_LABEL};${label}" TIMEOUT ${arg_TIMEOUT} COST ${arg_TIMEOUT})
    return()
  endif()
  # Suites are listed at test time: building needs no run, and sanitized builds list them under the same environment.
  file(GENERATE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/test_${name}.cmake CONTENT
    "include(${PROJECT_SOURCE_DIR}/cmake/suites.cmake)
trident_suites(${name} \"$<TARGET_FILE:test_${name}>\" \"${arg_LABEL};${label}\" ${arg_TIMEOUT} ${arg_FULL} ${arg_WAITS})\n")
  set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES ${CMAKE_CURRENT_BINARY_DIR}/test_${name}.cmake)
  if(arg_FULL)
    add_test(NAME ${name}/Full CONFIGURATIONS Full COMMAND test_${name} --gtest_filter=Full*)
    set_tests_properties(${name}/Full PROPERTIES
      TIMEOUT 3600 LABELS "${arg_LABEL};${label}" FAIL_REGULAR_EXPRESSION "0 tests from 0")
  endif()
endfunction()
