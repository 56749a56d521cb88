// A verdict as JSON, from JSON, and as lines.
#include "base/format.h"
#include "bench/gate.h"
#include "bench/page.h"
#include "io/json_writer.h"

namespace aeshna::bench {
namespace {

void write_verdict(JsonWriter& to, const Verdict& verdict) {
  to.text("engine", verdict.engine);
  to.text("mode", verdict.mode);
  to.begin("forward", '{');
  to.flag("pass", verdict.forward.pass);
  to.number("output_rel_l2", verdict.forward.output_rel_l2);
  to.number("loss_error", verdict.forward.loss_error);
  to.end();
  if (const auto& gate = verdict.backward) {
    to.begin("backward", '{');
    to.flag("pass", gate->pass);
    to.number("total_norm_error", gate->total_norm_error);
    to.number("norm_vector_error", gate->norm_vector_error);
    to.end();
  } else {
    to.raw("backward", "null");
  }
  if (const auto& gate = verdict.elementwise) {
    to.begin("elementwise", '{');
    to.flag("pass", gate->pass);
    to.number("limit", gate->limit);
    to.begin("worst", '{');
    to.text("name", gate->worst_name);
    to.number("error", gate->worst_error);
    to.end();
    to.number("median", gate->median);
    to.end();
  } else {
    to.raw("elementwise", "null");
  }
  to.begin("reasons", '[');
  for (const std::string& reason : verdict.reasons) to.item(json_quoted(reason));
  to.end();
}

Verdict read_verdict(const JsonField& from) {
  Verdict verdict;
  verdict.engine = from.text("engine").value_or("");
  verdict.mode = from.text("mode").value_or("");
  const JsonField forward = from.at("forward");
  verdict.forward = {.pass = forward.at("pass").flag(),
                     .output_rel_l2 = forward.number("output_rel_l2"),
                     .loss_error = forward.number("loss_error")};
  bool pass = verdict.forward.pass;
  if (from.has("backward")) {
    const JsonField backward = from.at("backward");
    verdict.backward = {.pass = backward.at("pass").flag(),
                        .total_norm_error = backward.number("total_norm_error"),
                        .norm_vector_error = backward.number("norm_vector_error")};
    pass &= verdict.backward->pass;
  }
  if (from.has("elementwise")) {
    const JsonField elementwise = from.at("elementwise"), worst = elementwise.at("worst");
    verdict.elementwise = {.pass = elementwise.at("pass").flag(),
                           .limit = elementwise.at("limit").number(),
                           .worst_name = plain(worst.text("name").value_or("")),
                           .worst_error = worst.number("error"),
                           .median = elementwise.number("median")};
    pass &= verdict.elementwise->pass;
  }
  for (const JsonField& reason : from.at("reasons").items()) verdict.reasons.push_back(plain(reason.text()));
  if (pass != verdict.pass())
    from.at("reasons").refuse(pass ? "not empty, but all gates passed" : "empty, but a gate failed");
  return verdict;
}

std::string number(std::optional<double> value) { return value ? formatted("{:.3g}", *value) : "not finite"; }

std::string describe(const Verdict& verdict, std::string_view title) {
  std::string text(title);
  if (!verdict.engine.empty())
    text += formatted(" ({}{}{})", verdict.engine, verdict.mode.empty() ? "" : " ", verdict.mode);
  text += '\n';
  const auto line = [&](bool pass, std::string_view gate, const std::string& numbers) {
    text += formatted("  {} {:<12}{}\n", pass ? "PASS" : "FAIL", gate, numbers);
  };
  const ForwardGate& forward = verdict.forward;
  line(forward.pass, "forward",
       formatted("output {}, loss {} (below {:g})", number(forward.output_rel_l2),
                 forward.loss_error ? number(forward.loss_error) : "-", kForwardLimit));
  if (verdict.backward)
    line(verdict.backward->pass, "backward",
         formatted("total norm {}, vector of norms {} (below {:g})", number(verdict.backward->total_norm_error),
                   number(verdict.backward->norm_vector_error), kBackwardLimit));
  if (verdict.elementwise)
    line(verdict.elementwise->pass, "elementwise",
         formatted("worst {} of {}, median {} (at most {:g})", number(verdict.elementwise->worst_error),
                   verdict.elementwise->worst_name, number(verdict.elementwise->median), verdict.elementwise->limit));
  for (const std::string& reason : verdict.reasons) text += formatted("       {}\n", reason);
  return text;
}

}  // namespace

std::string json_text(const GateResult& result) {
  const GateSubject& subject = result.subject;
  JsonWriter json;
  json.begin('{');
  json.count("schema", kSchema);
  json.text("workload", subject.workload);
  json.text("config", subject.config);
  json.text("phase", subject.phase);
  json.text("contract", subject.contract);
  json.text("gpu", subject.gpu);
  write_verdict(json, result.candidate);
  if (result.baseline) {
    json.begin("baseline", '{');
    write_verdict(json, *result.baseline);
    json.end();
  } else {
    json.raw("baseline", "null");
  }
  json.end();
  return json.take();
}

GateResult read_gate(const JsonField& document) {
  GateResult result;
  result.subject = {.workload = plain(document.at("workload").text()),
                    .phase = document.at("phase").text(),
                    .contract = document.at("contract").text(),
                    .config = document.text("config").value_or(""),
                    .gpu = document.text("gpu").value_or("")};
  result.candidate = read_verdict(document);
  if (document.has("baseline")) result.baseline = read_verdict(document.at("baseline"));
  return result;
}

std::string describe(const GateResult& result) {
  std::string text = describe(result.candidate, "candidate");
  if (result.baseline) text += describe(*result.baseline, "baseline");
  return text;
}

}  // namespace aeshna::bench
