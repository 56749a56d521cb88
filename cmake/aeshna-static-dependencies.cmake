# aeshna_find_static_dependencies(): the libraries that a program which links libaeshna.a links too. Used by Aeshna's own
# build and, installed beside it, by aeshna-config.cmake. Sets AESHNA_STATIC_DEPENDENCIES to their targets.
macro(aeshna_find_static_dependencies)
  find_package(Threads ${ARGN})
  # The optimizer belongs to glslang's own needs; glslang's package file does not always look for it.
  find_package(SPIRV-Tools CONFIG ${ARGN})
  find_package(SPIRV-Tools-opt CONFIG ${ARGN})
  find_package(glslang CONFIG ${ARGN})
  set(ZLIB_USE_STATIC_LIBS ON)
  find_package(ZLIB ${ARGN})
  set(Protobuf_USE_STATIC_LIBS ON)
  find_package(Protobuf ${ARGN})
  set(AESHNA_STATIC_DEPENDENCIES
    glslang::SPIRV glslang::glslang glslang::glslang-default-resource-limits protobuf::libprotobuf-lite ZLIB::ZLIB Threads::Threads ${CMAKE_DL_LIBS})
endmacro()
