# aeshna_onnx_schema: ONNX's schema as C++ for protobuf's lite runtime. One heavy file, which only src/io/onnx/parse.cpp reads.
set(onnx_dir "${PROJECT_BINARY_DIR}/generated/onnx")
file(MAKE_DIRECTORY "${onnx_dir}")
add_custom_command(
  OUTPUT "${onnx_dir}/onnx.pb.cc" "${onnx_dir}/onnx.pb.h"
  COMMAND protobuf::protoc "--cpp_out=${onnx_dir}" "--proto_path=${PROJECT_SOURCE_DIR}/third_party/onnx" onnx.proto
  DEPENDS "${PROJECT_SOURCE_DIR}/third_party/onnx/onnx.proto" protobuf::protoc
  COMMENT "Compiling ONNX's schema"
  VERBATIM)

# Not with aeshna_flags: the warnings of generated code are not ours.
add_library(aeshna_onnx_schema OBJECT "${onnx_dir}/onnx.pb.cc" "${onnx_dir}/onnx.pb.h")
target_include_directories(aeshna_onnx_schema SYSTEM PUBLIC "${onnx_dir}")
target_link_libraries(aeshna_onnx_schema PUBLIC protobuf::libprotobuf-lite)
if(NOT MSVC)
  target_compile_options(aeshna_onnx_schema PRIVATE -w -ffunction-sections -fdata-sections)
endif()
if(AESHNA_SANITIZE)
  target_compile_options(aeshna_onnx_schema PRIVATE -fsanitize=${AESHNA_SANITIZE} -fno-sanitize=vptr)
endif()
