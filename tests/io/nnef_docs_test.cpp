// docs/nnef.md lists the operations as the importer's table has them.
#include <gtest/gtest.h>

#include <set>

#include "io/nnef/operation.h"
#include "support/temp_dir.h"

namespace aeshna {
namespace {

TEST(NnefDocs, TheTableIsTheImporters) {
  std::string table = "| operation | | |\n|---|---|---|\n";
  std::set<std::string> names;
  for (const nnef::Operation* op : nnef::all_operations()) {
    EXPECT_TRUE(names.insert(op->name).second) << op->name;
    EXPECT_NO_THROW(nnef::parse_signature(op->name, op->signature)) << op->name;
    table += formatted("| `{}` | {} | {} |\n", op->name, op->translate != nullptr || op->leaf ? "yes" : "no", op->note);
  }
  const std::string page = test::read_text(std::string(AESHNA_SOURCE_DIR) + "/docs/nnef.md");
  EXPECT_TRUE(page.ends_with("## Operations\n\n" + table)) << "the page should end with\n\n" << table;
}

}  // namespace
}  // namespace aeshna
