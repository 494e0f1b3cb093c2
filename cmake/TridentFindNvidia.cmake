# trident_find_nvidia(NAME PATH HEADER h VERSION_HEADER h DEFINES d... LIBRARIES l...): what the Find modules of NVIDIA's libraries have in common.
# Sets NAME_INCLUDE_DIR, NAME_LIBRARY, NAME_VERSION and NAME_FOUND, and makes the target NAME::LIBRARY of the first name in LIBRARIES.
#
# Looked for below PATH (a variable or the environment's; a Python wheel's folder fits, whose libraries are only there as lib...so.N), then
# beside the CUDA toolkit, then in the system's places; a library rather where its header is.
include(FindPackageHandleStandardArgs)

macro(trident_find_nvidia name path)
  cmake_parse_arguments(wanted "" "HEADER;VERSION_HEADER" "DEFINES;LIBRARIES" ${ARGN})
  find_path(${name}_INCLUDE_DIR ${wanted_HEADER} HINTS ${${path}} ENV ${path} ${CUDAToolkit_INCLUDE_DIRS} PATH_SUFFIXES include)
  cmake_path(GET ${name}_INCLUDE_DIR PARENT_PATH wanted_place)
  find_library(${name}_LIBRARY NAMES ${wanted_LIBRARIES} NAMES_PER_DIR HINTS ${${path}} ENV ${path} ${wanted_place} ${CUDAToolkit_LIBRARY_DIR}
    PATH_SUFFIXES lib lib64)
  if(EXISTS "${${name}_INCLUDE_DIR}/${wanted_VERSION_HEADER}")
    set(${name}_VERSION "")
    foreach(wanted_define ${wanted_DEFINES})
      file(STRINGS "${${name}_INCLUDE_DIR}/${wanted_VERSION_HEADER}" wanted_line REGEX "^#define ${wanted_define} +[0-9]+")
      string(REGEX REPLACE "[^0-9]" "" wanted_number "${wanted_line}")
      list(APPEND ${name}_VERSION ${wanted_number})
    endforeach()
    list(JOIN ${name}_VERSION . ${name}_VERSION)
  endif()
  find_package_handle_standard_args(${name} REQUIRED_VARS ${name}_LIBRARY ${name}_INCLUDE_DIR VERSION_VAR ${name}_VERSION)
  list(GET wanted_LIBRARIES 0 wanted_target)
  if(${name}_FOUND AND NOT TARGET ${name}::${wanted_target})
    add_library(${name}::${wanted_target} UNKNOWN IMPORTED)
    set_target_properties(${name}::${wanted_target} PROPERTIES
      IMPORTED_LOCATION "${${name}_LIBRARY}" INTERFACE_INCLUDE_DIRECTORIES "${${name}_INCLUDE_DIR}")
  endif()
endmacro()
