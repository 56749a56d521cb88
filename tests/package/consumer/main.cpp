#include <aeshna/aeshna.h>

#include <cstdio>
#include <string>

// Builds and compiles a graph on the device that only plans, so that the whole library is linked and no driver is needed.
int main() {
  try {
    aeshna::Graph graph;
    auto x = graph.input("x", {4, 8});
    graph.output("y", aeshna::nn::mlp(x, {16}, 3, "net"));
    aeshna::Weights weights(graph, {.device = aeshna::Device({.selector = "null"})});
    aeshna::Session session = aeshna::compile(graph, weights);
    const std::string plan = session.plan();
    std::printf("planned: %zu bytes of text\n", plan.size());
    return plan.empty() ? 1 : 0;
  } catch (const aeshna::Error& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 1;
  }
}
