// Reductions of the inner dimensions of a space of rows. A workgroup has TX rows, TY threads to each, and one of PARTS
// shares of their inner points. Threads of rows beyond the last take part in every barrier with no points to visit.
// Hook: void reduce_rows(); macros: ROWS, TX, TY, BY_COLUMNS (neighbouring threads: rows, else points of a row),
// PARTS.
void main() {
  uint group = ae_group();
  if (group >= P.groups) return;
  thread = gl_LocalInvocationID.x;
  tx = BY_COLUMNS ? thread % TX : thread / TY;
  ty = BY_COLUMNS ? thread / TX : thread % TY;
  block = group / PARTS;
  part = group - block * PARTS;
  row_inside = block * TX + tx < ROWS;
  row = row_inside ? block * TX + tx : 0u;
  reduce_rows();
}
