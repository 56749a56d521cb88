# One object library for each layer of src/, so that a layer can be compiled alone (ninja aeshna_ir), and one static
# library of them all. tools/check_includes checks that includes point one way.

# aeshna_headers_only: the private and public include folders, for what is part of Aeshna.
add_library(aeshna_internal INTERFACE)
target_include_directories(aeshna_internal INTERFACE "${PROJECT_SOURCE_DIR}/include" "${PROJECT_SOURCE_DIR}/src")
target_link_libraries(aeshna_internal INTERFACE aeshna_flags)

# The kernels' GLSL text, embedded as src/codegen/embedded_kernels.h declares it.
file(GLOB_RECURSE aeshna_kernels CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/src/kernels/*.glsl")
set(aeshna_embedded_kernels "${PROJECT_BINARY_DIR}/generated/embedded_kernels.cpp")
add_custom_command(
  OUTPUT "${aeshna_embedded_kernels}"
  COMMAND "${CMAKE_COMMAND}" "-DROOT=${PROJECT_SOURCE_DIR}/src/kernels" "-DOUTPUT=${aeshna_embedded_kernels}"
          -P "${PROJECT_SOURCE_DIR}/cmake/embed_kernels.cmake"
  DEPENDS ${aeshna_kernels} "${PROJECT_SOURCE_DIR}/cmake/embed_kernels.cmake"
  COMMENT "Embedding src/kernels"
  VERBATIM)

add_library(aeshna STATIC)
add_library(aeshna::aeshna ALIAS aeshna)
set_target_properties(aeshna PROPERTIES LINKER_LANGUAGE CXX)
target_compile_features(aeshna PUBLIC cxx_std_23)
target_include_directories(aeshna PUBLIC
  "$<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>" "$<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>")
target_link_libraries(aeshna PRIVATE ${AESHNA_STATIC_DEPENDENCIES})
if(AESHNA_SANITIZE)
  target_link_options(aeshna PUBLIC $<BUILD_INTERFACE:-fsanitize=${AESHNA_SANITIZE}>)
endif()

foreach(layer base ir ops compile codegen gpu io nn runtime)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/src/${layer}/*.cpp")
  if(layer STREQUAL "gpu" AND NOT APPLE)
    list(FILTER sources EXCLUDE REGEX "/gpu/metal/")
  endif()
  if(layer STREQUAL "codegen")
    list(APPEND sources "${aeshna_embedded_kernels}")
  endif()
  if(NOT sources)
    continue()
  endif()
  add_library(aeshna_${layer} OBJECT ${sources})
  target_link_libraries(aeshna_${layer} PRIVATE aeshna_internal ${AESHNA_NEEDS_${layer}})
  target_sources(aeshna PRIVATE $<TARGET_OBJECTS:aeshna_${layer}>)
endforeach()

if(NOT MSVC)  # for people who look at a profile, and for reading a model once: small, rather than fast
  file(GLOB aeshna_nnef CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/src/io/nnef/*.cpp")
  set_source_files_properties("${PROJECT_SOURCE_DIR}/src/runtime/profile.cpp" "${PROJECT_SOURCE_DIR}/src/runtime/profile_rows.cpp" ${aeshna_nnef}
                              PROPERTIES COMPILE_OPTIONS "$<$<CONFIG:Release>:-Os>")
endif()

# src/bench: what `aeshna bench` does, for the program and the tests; no part of the library.
file(GLOB bench_sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/src/bench/*.cpp")
add_library(aeshna_bench STATIC EXCLUDE_FROM_ALL ${bench_sources})
target_link_libraries(aeshna_bench PRIVATE aeshna_internal nlohmann_json::nlohmann_json PUBLIC aeshna)
aeshna_small_code(aeshna_bench)
target_sources(aeshna PRIVATE $<TARGET_OBJECTS:aeshna_onnx_schema>)

# src/serve: what `aeshna serve` does, for the program and the tests; no part of the library.
if(AESHNA_BUILD_CLI OR AESHNA_BUILD_TESTS)
  find_package(Boost 1.83 CONFIG REQUIRED) # Asio and Beast, headers alone
  file(GLOB serve_sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/src/serve/*.cpp")
  add_library(aeshna_serve STATIC EXCLUDE_FROM_ALL ${serve_sources})
  target_compile_definitions(aeshna_serve PRIVATE BOOST_ASIO_NO_DEPRECATED)
  target_link_libraries(aeshna_serve PRIVATE aeshna_internal nlohmann_json::nlohmann_json Boost::headers PUBLIC aeshna)
  aeshna_small_code(aeshna_serve)
endif()

# Files that are read once: their parsers are built for size.
if(CMAKE_CXX_COMPILER_ID MATCHES "GNU|Clang")
  file(GLOB loaders CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/src/nn/language/*.cpp" "${PROJECT_SOURCE_DIR}/src/nn/tokenizer/load_*.cpp"
       "${PROJECT_SOURCE_DIR}/src/nn/pretrained/*.cpp" "${PROJECT_SOURCE_DIR}/src/io/hub/*.cpp")
  set_source_files_properties(${loaders} PROPERTIES COMPILE_OPTIONS "$<$<CONFIG:Release>:-Os>")
endif()
