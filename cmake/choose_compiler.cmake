# Picks a compiler that knows enough C++23 where the default one does not, unless the user named one.
# (Debian 12's g++ is 12; scripts/setup.sh installs g++-14 beside it.)
if(NOT CMAKE_CXX_COMPILER AND NOT DEFINED ENV{CXX} AND NOT CMAKE_TOOLCHAIN_FILE AND CMAKE_HOST_UNIX AND NOT CMAKE_HOST_APPLE)
  if(AESHNA_FUZZ) # libFuzzer is part of clang
    find_program(aeshna_compiler NAMES clang++-21 clang++-20 clang++-19 clang++-18 clang++-17 clang++ NO_CACHE)
  else()
    find_program(aeshna_compiler NAMES g++-14 g++-15 g++-13 NO_CACHE)
  endif()
  if(aeshna_compiler)
    set(CMAKE_CXX_COMPILER "${aeshna_compiler}")
  endif()
  unset(aeshna_compiler)
endif()

# ccache, where there is one.
if(NOT DEFINED CMAKE_CXX_COMPILER_LAUNCHER AND NOT DEFINED ENV{CMAKE_CXX_COMPILER_LAUNCHER})
  find_program(aeshna_ccache ccache NO_CACHE)
  if(aeshna_ccache)
    set(CMAKE_CXX_COMPILER_LAUNCHER "${aeshna_ccache}")
  endif()
  unset(aeshna_ccache)
endif()
