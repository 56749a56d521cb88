// A verdict as JSON, from JSON, and as lines.
#include "base/format.h"
#include "bench/gate.h"
#include "bench/json.h"
#include "bench/page.h"

namespace aeshna::bench {
namespace {

void put_verdict(Json& to, const Verdict& verdict) {
  to["engine"] = text_or_null(verdict.engine);
  to["mode"] = text_or_null(verdict.mode);
  Json& forward = to["forward"];
  forward["pass"] = verdict.forward.pass;
  forward["output_rel_l2"] = number_or_null(verdict.forward.output_rel_l2);
  forward["loss_error"] = number_or_null(verdict.forward.loss_error);
  Json backward, elementwise;
  if (verdict.backward) {
    backward["pass"] = verdict.backward->pass;
    backward["total_norm_error"] = number_or_null(verdict.backward->total_norm_error);
    backward["norm_vector_error"] = number_or_null(verdict.backward->norm_vector_error);
  }
  if (verdict.elementwise) {
    const ElementwiseGate& gate = *verdict.elementwise;
    elementwise["pass"] = gate.pass;
    elementwise["limit"] = gate.limit;
    elementwise["worst"]["name"] = text_or_null(gate.worst_name);
    elementwise["worst"]["error"] = number_or_null(gate.worst_error);
    elementwise["median"] = number_or_null(gate.median);
  }
  to["backward"] = std::move(backward);
  to["elementwise"] = std::move(elementwise);
  Json& reasons = to["reasons"] = Json::array();
  for (const std::string& reason : verdict.reasons) reasons.push_back(reason);
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
  Json json;
  json["schema"] = kSchema;
  const GateSubject& subject = result.subject;
  json["workload"] = text_or_null(subject.workload);
  json["config"] = text_or_null(subject.config);
  json["phase"] = text_or_null(subject.phase);
  json["contract"] = text_or_null(subject.contract);
  json["gpu"] = text_or_null(subject.gpu);
  put_verdict(json, result.candidate);
  json["baseline"] = nullptr;
  if (result.baseline) put_verdict(json["baseline"], *result.baseline);
  return text_of(json);
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
