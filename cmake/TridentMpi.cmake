# TRIDENT_MPI=AUTO|ON|OFF: ranks as processes, over MPI's C interface. Sets TRIDENT_HAS_MPI and says on one line
# what was chosen.
#
# Included at the top of the tree: finding MPI needs the C compiler, which only the top may enable.
set(TRIDENT_MPI AUTO CACHE STRING "Ranks as processes over MPI: AUTO (if MPI is found), ON (it must be), OFF")
set_property(CACHE TRIDENT_MPI PROPERTY STRINGS AUTO ON OFF)
if(NOT TRIDENT_MPI MATCHES "^(AUTO|ON|OFF)$")
  message(FATAL_ERROR "TRIDENT_MPI = ${TRIDENT_MPI}: not AUTO, ON or OFF")
endif()

set(TRIDENT_HAS_MPI FALSE)
if(NOT TRIDENT_MPI STREQUAL OFF)
  enable_language(C)
  find_package(MPI QUIET COMPONENTS C)
  if(MPI_C_FOUND)
    set(TRIDENT_HAS_MPI TRUE)
  endif()
endif()

if(TRIDENT_HAS_MPI)
  list(GET MPI_C_LIBRARIES 0 trident_mpi_library)
  message(STATUS "Ranks as processes: over MPI ${MPI_C_VERSION} (${trident_mpi_library})")
elseif(TRIDENT_MPI STREQUAL ON)
  message(FATAL_ERROR "TRIDENT_MPI = ON: no MPI was found; install libopenmpi-dev and openmpi-bin, or say which with -DMPI_HOME=...")
elseif(TRIDENT_MPI STREQUAL AUTO)
  message(STATUS "Ranks as processes: no (MPI was not found; install libopenmpi-dev and openmpi-bin for them)")
else()
  message(STATUS "Ranks as processes: no (TRIDENT_MPI = OFF)")
endif()
