#include "cli/classifier.h"

#include "aeshna/nn.h"
#include "aeshna/ops.h"

namespace aeshna::cli {

void build_classifier(Graph& graph, const Classifier& model, std::int64_t batch, bool loss) {
  const Value x = graph.input("x", {batch, model.pixels});
  const Value logits = nn::mlp(x, model.hidden, model.classes, "mlp");
  graph.output("logits", logits);
  if (loss) graph.output("loss", cross_entropy(logits, graph.input("labels", {batch}, DType::i32)));
}

}  // namespace aeshna::cli
