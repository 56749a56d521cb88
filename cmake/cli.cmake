# The command-line program `aeshna`.
file(GLOB_RECURSE sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/src/cli/*.cpp")
if(sources)
  find_package(CLI11 CONFIG REQUIRED)
  add_executable(aeshna_cli ${sources})
  set_target_properties(aeshna_cli PROPERTIES OUTPUT_NAME aeshna)
  target_link_libraries(aeshna_cli PRIVATE aeshna_internal aeshna CLI11::CLI11)
  aeshna_static_runtime(aeshna_cli)
  if(NOT MSVC)
    target_compile_options(aeshna_cli PRIVATE "$<$<CONFIG:Release>:-Os>")  # nothing in it is hot
  endif()
else()
  message(STATUS "src/cli is empty: no command-line program")
endif()
