// One invocation computes RUNS points, a workgroup's width apart, so that neighbours touch neighbouring memory.
// Hook: void compute(uint point); macros: POINTS, RUNS, UNROLL (a loop attribute).
void main() {
  uint group = ae_group();
  if (group >= P.groups) return;
  uint first = group * (RUNS * gl_WorkGroupSize.x) + gl_LocalInvocationID.x;
  [[UNROLL]] for (uint run = 0u; run < RUNS; ++run) {
    uint point = first + run * gl_WorkGroupSize.x;
    if (point < POINTS) compute(point);
  }
}
