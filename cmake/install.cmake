# cmake --install: headers, library, CMake package, pkg-config file, program, documents and the demo's data.
include(CMakePackageConfigHelpers)

set(package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/aeshna")
install(TARGETS aeshna EXPORT aeshna-targets ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}")
install(DIRECTORY "${PROJECT_SOURCE_DIR}/include/aeshna" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}"
        FILES_MATCHING PATTERN "*.h")
if(TARGET aeshna_cli)
  install(TARGETS aeshna_cli RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}")
endif()
install(EXPORT aeshna-targets NAMESPACE aeshna:: DESTINATION "${package_dir}")
configure_package_config_file("${PROJECT_SOURCE_DIR}/cmake/aeshna-config.cmake.in"
  "${PROJECT_BINARY_DIR}/aeshna-config.cmake" INSTALL_DESTINATION "${package_dir}")
write_basic_package_version_file("${PROJECT_BINARY_DIR}/aeshna-config-version.cmake" COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/aeshna-config.cmake" "${PROJECT_BINARY_DIR}/aeshna-config-version.cmake"
              "${PROJECT_SOURCE_DIR}/cmake/aeshna-static-dependencies.cmake"
        DESTINATION "${package_dir}")

# pkg-config: the library is static, so everything it needs stands in Libs. glslang is one library or several,
# depending on its version (since 15 the others are empty).
set(AESHNA_PC_LIBS "")
foreach(name SPIRV glslang MachineIndependent GenericCodeGen OSDependent glslang-default-resource-limits
             SPIRV-Tools-opt SPIRV-Tools)
  find_library(aeshna_pc_${name} NAMES ${name} NO_CACHE)
  if(aeshna_pc_${name})
    string(APPEND AESHNA_PC_LIBS " -l${name}")
  endif()
endforeach()
string(APPEND AESHNA_PC_LIBS " -lprotobuf-lite -lz -lpthread -lstdc++ -lm")
if(CMAKE_DL_LIBS)
  string(APPEND AESHNA_PC_LIBS " -l${CMAKE_DL_LIBS}")
endif()
# Relative to the file itself, so that an installed tree can be moved.
file(RELATIVE_PATH AESHNA_PC_PREFIX "${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig" "${CMAKE_INSTALL_PREFIX}")
file(RELATIVE_PATH AESHNA_PC_LIBDIR "${CMAKE_INSTALL_PREFIX}" "${CMAKE_INSTALL_FULL_LIBDIR}")
file(RELATIVE_PATH AESHNA_PC_INCLUDEDIR "${CMAKE_INSTALL_PREFIX}" "${CMAKE_INSTALL_FULL_INCLUDEDIR}")
configure_file("${PROJECT_SOURCE_DIR}/cmake/aeshna.pc.in" "${PROJECT_BINARY_DIR}/aeshna.pc" @ONLY)
install(FILES "${PROJECT_BINARY_DIR}/aeshna.pc" DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig")

install(FILES "${PROJECT_SOURCE_DIR}/README.md" "${PROJECT_SOURCE_DIR}/LICENSE" DESTINATION "${CMAKE_INSTALL_DOCDIR}")
install(DIRECTORY "${PROJECT_SOURCE_DIR}/docs/" DESTINATION "${CMAKE_INSTALL_DOCDIR}" FILES_MATCHING PATTERN "*.md")
install(DIRECTORY "${PROJECT_SOURCE_DIR}/data/" DESTINATION "${CMAKE_INSTALL_DATADIR}/aeshna")
