# aeshna_commit: the header aeshna_commit.h, which names the commit that is being built (write_commit.cmake). Every new commit
# compiles again what includes it: let that be small.
set(commit_header "${PROJECT_BINARY_DIR}/generated/commit/aeshna_commit.h")
add_custom_target(aeshna_commit_header
  COMMAND "${CMAKE_COMMAND}" "-DSOURCE=${PROJECT_SOURCE_DIR}" "-DOUTPUT=${commit_header}"
          -P "${CMAKE_CURRENT_LIST_DIR}/write_commit.cmake"
  BYPRODUCTS "${commit_header}" VERBATIM)
add_library(aeshna_commit INTERFACE)
target_include_directories(aeshna_commit INTERFACE "${PROJECT_BINARY_DIR}/generated/commit")
add_dependencies(aeshna_commit aeshna_commit_header)
