# Writes OUTPUT, a header with the commit that is being built; it is touched only when that changes.
execute_process(COMMAND git describe --always --dirty WORKING_DIRECTORY "${SOURCE}" OUTPUT_VARIABLE commit
                OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
if(failed)
  set(commit "unknown")
endif()
file(CONFIGURE OUTPUT "${OUTPUT}" CONTENT "#define AESHNA_BENCH_COMMIT \"${commit}\"\n")
