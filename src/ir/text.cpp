// The text form of graphs: Graph::print and parse_graph. The grammar is in docs/graph-text.md.
#include <charconv>
#include <cmath>
#include <limits>
#include <string>

#include "aeshna/graph.h"
#include "base/fail.h"
#include "base/format.h"
#include "ir/graph_access.h"
#include "ir/op.h"

namespace aeshna {

namespace {

constexpr std::string_view kHeader = "aeshna graph 1";
constexpr std::string_view kEnd = "end";

bool is_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.';
}
bool is_digit(char c) { return c >= '0' && c <= '9'; }

// ---- printing

std::string quoted(std::string_view text) {
  std::string result = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\')
      result += {'\\', c};
    else if (c == '\n')
      result += "\\n";
    else if (byte < 0x20 || byte == 0x7f)
      result += formatted("\\x{:02x}", byte);
    else
      result += c;
  }
  return result + "\"";
}

std::string number(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  std::string text = formatted("{}", value);                        // the shortest that reads back to the same bits
  if (text.find_first_of(".e") == std::string::npos) text += ".0";  // an integer without a point is an int attribute
  return text;
}

std::string hex(std::span<const std::byte> bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text = "0x";
  text.reserve(2 + 2 * bytes.size());
  for (const std::byte byte : bytes) {
    text += kDigits[static_cast<std::size_t>(byte) >> 4];
    text += kDigits[static_cast<std::size_t>(byte) & 15];
  }
  return text;
}

struct PrintValue {
  std::string operator()(bool value) const { return value ? "true" : "false"; }
  std::string operator()(std::int64_t value) const { return std::to_string(value); }
  std::string operator()(double value) const { return number(value); }
  std::string operator()(const std::string& value) const { return quoted(value); }
  std::string operator()(DType value) const { return std::string(dtype_name(value)); }
  std::string operator()(const std::vector<std::int64_t>& values) const {
    std::string text = "[";
    for (const std::int64_t value : values) text += (text.size() == 1 ? "" : ", ") + std::to_string(value);
    return text + "]";
  }
  std::string operator()(const std::vector<double>& values) const {
    std::string text = "(";
    for (const double value : values) text += (text.size() == 1 ? "" : ", ") + number(value);
    return text + ")";
  }
  std::string operator()(const Literal& value) const {
    std::string text = value.type().to_string() + " " + hex(value.bytes());
    const bool scalar =
        value.type().shape.elements() == 1 && dtype_info(value.type().dtype).kind != DTypeInfo::Kind::Quantized;
    return scalar ? text + formatted(" /* {} */", value.at(0)) : text;
  }
};

std::string print_attrs(const Attrs& attrs) {
  if (attrs.items().empty()) return {};
  std::string text = " {";
  for (const auto& [name, value] : attrs.items()) {
    if (text.size() > 2) text += ", ";
    const bool plain = !name.empty() && !is_digit(name[0]) && std::ranges::all_of(name, is_word);
    text += (plain ? name : quoted(name)) + " = " + std::visit(PrintValue{}, value);
  }
  return text + "}";
}

std::string print_ref(ValueId id) {
  return id.result == 0 ? formatted("%{}", id.node) : formatted("%{}:{}", id.node, id.result);
}

std::string print_line(const SourceLine& line) {
  return line.file.empty() ? std::string() : formatted(" @{}:{}", quoted(line.file), line.line);
}

std::string print_node(NodeId id, const Node& node) {
  std::string text = formatted("%{} = {}(", id, node.op->name);
  for (std::size_t i = 0; i < node.inputs.size(); ++i) text += (i == 0 ? "" : ", ") + print_ref(node.inputs[i]);
  text += ")" + print_attrs(node.attrs);
  for (std::size_t i = 0; i < node.results.size(); ++i) text += (i == 0 ? " : " : ", ") + node.results[i].to_string();
  text += print_line(node.line);
  if (node.segment == Segment::Backward) text += " #backward";
  if (node.segment == Segment::Update) text += " #update";
  if (node.precision == Precision::Full) text += " full";
  if (!node.name.empty()) text += " " + quoted(node.name);
  return text + "\n";
}

// ---- parsing

/// Recursive descent without recursion: no rule of the grammar contains itself, so nesting is bounded by construction.
class Parser {
 public:
  Parser(std::string_view text, Graph& graph) : text_(text), graph_(graph) {}

  void run() {
    expect_text(kHeader);
    end_of_line();
    for (;;) {
      skip_empty_lines();
      if (peek() == '%')
        parse_node();
      else if (accept_word("output"))
        parse_output();
      else if (accept_word(kEnd))
        break;
      else
        wrong("expected a node, an output or 'end'");
    }
    skip_empty_lines();
    if (at_ < text_.size()) wrong("expected nothing after 'end'");
  }

 private:
  template <class... Args>
  [[noreturn]] void wrong(std::format_string<Args...> format, Args&&... args) const {
    std::size_t line = 1;
    std::size_t start = 0;
    for (std::size_t i = 0; i < at_; ++i) {
      if (text_[i] == '\n') {
        ++line;
        start = i + 1;
      }
    }
    const std::string found = at_ >= text_.size() ? "the end of the text" : "'" + std::string(1, text_[at_]) + "'";
    fail(ErrorCode::CorruptFile, "graph text, line {}, column {} (before {}): {}", line, at_ - start + 1, found,
         formatted(format, std::forward<Args>(args)...));
  }

  /// Runs `body`; an Error of the graph's own checks becomes one of the file, with its place.
  template <class Body>
  auto checked(Body body) const {
    try {
      return body();
    } catch (const Error& error) {
      wrong("{}", error.message());
    }
  }

  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }

  void skip_spaces() {
    for (;;) {
      if (peek() == ' ' || peek() == '\t' || peek() == '\r')
        ++at_;
      else if (text_.substr(at_).starts_with("/*")) {
        const std::size_t close = text_.find("*/", at_ + 2);
        if (close == std::string_view::npos) wrong("the comment is not closed");
        at_ = close + 2;
      } else
        return;
    }
  }

  void skip_empty_lines() {
    for (skip_spaces(); peek() == '\n' && at_ < text_.size(); skip_spaces()) ++at_;
  }

  void end_of_line() {
    skip_spaces();
    if (at_ < text_.size() && text_[at_] != '\n') wrong("expected the end of the line");
  }

  void expect_text(std::string_view expected) {
    if (!text_.substr(at_).starts_with(expected)) wrong("expected '{}'", expected);
    at_ += expected.size();
  }

  bool accept(char c) {
    skip_spaces();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }

  void expect(char c) {
    if (!accept(c)) wrong("expected '{}'", c);
  }

  bool accept_word(std::string_view expected) {
    skip_spaces();
    const std::string_view rest = text_.substr(at_);
    if (!rest.starts_with(expected) || (rest.size() > expected.size() && is_word(rest[expected.size()]))) return false;
    at_ += expected.size();
    return true;
  }

  std::string_view word(std::string_view what) {
    skip_spaces();
    const std::size_t start = at_;
    while (at_ < text_.size() && is_word(text_[at_])) ++at_;
    if (start == at_) wrong("expected {}", what);
    return text_.substr(start, at_ - start);
  }

  template <class T>
  T integer(std::string_view what) {
    skip_spaces();
    T value{};
    const auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), value);
    if (error == std::errc::result_out_of_range) wrong("{} is too large", what);
    if (error != std::errc()) wrong("expected {}", what);
    at_ = static_cast<std::size_t>(end - text_.data());
    return value;
  }

  int hex_digit() {
    const char c = peek();
    if (!is_digit(c) && !(c >= 'a' && c <= 'f')) wrong("expected a lower-case hexadecimal digit");
    ++at_;
    return is_digit(c) ? c - '0' : c - 'a' + 10;
  }

  std::string string() {
    expect('"');
    std::string value;
    for (;;) {
      if (at_ >= text_.size() || text_[at_] == '\n') wrong("the string is not closed");
      char c = text_[at_++];
      if (c == '"') return value;
      if (c == '\\') {
        const char escape = peek();
        if (escape != 'n' && escape != 'x' && escape != '"' && escape != '\\') wrong("unknown escape in a string");
        ++at_;
        c = escape == 'n' ? '\n' : escape;
        if (escape == 'x') {
          const int high = hex_digit();
          c = static_cast<char>(high * 16 + hex_digit());
        }
      }
      value += c;
    }
  }

  /// An integer, or a double (which always shows a point, an exponent, inf or nan).
  AttrValue numeric() {
    skip_spaces();
    if (accept_word("inf")) return std::numeric_limits<double>::infinity();
    if (accept_word("nan")) return std::numeric_limits<double>::quiet_NaN();
    if (accept_word("-inf")) return -std::numeric_limits<double>::infinity();
    std::size_t end = at_;
    while (end < text_.size() && (is_digit(text_[end]) || std::string_view("+-.e").contains(text_[end]))) ++end;
    const std::string_view token = text_.substr(at_, end - at_);
    if (token.find_first_of(".e") == std::string_view::npos) return integer<std::int64_t>("a number");
    double value = 0;
    const auto [stop, error] = std::from_chars(token.data(), token.data() + token.size(), value);
    if (error != std::errc() || stop != token.data() + token.size()) wrong("'{}' is no number", token);
    at_ = end;
    return value;
  }

  Shape shape() {
    std::vector<std::int64_t> dims;
    expect('[');
    while (!accept(']')) {
      if (!dims.empty()) expect(',');
      dims.push_back(integer<std::int64_t>("a dimension"));
      if (dims.size() > static_cast<std::size_t>(Shape::kMaxRank))
        wrong("a shape has at most {} dimensions", Shape::kMaxRank);
    }
    return checked([&] { return Shape(std::span<const std::int64_t>(dims)); });
  }

  DType dtype() {
    const std::string_view name = word("a dtype");
    return checked([&] { return parse_dtype(name); });
  }

  TensorType type() {
    const DType element = dtype();
    return {element, shape()};
  }

  Literal literal(DType element) {
    TensorType type{element, shape()};
    skip_spaces();
    expect_text("0x");
    std::vector<std::byte> bytes;
    while (is_digit(peek()) || (peek() >= 'a' && peek() <= 'f')) {
      const int high = hex_digit();
      bytes.push_back(static_cast<std::byte>(high * 16 + hex_digit()));
    }
    return checked([&] { return Literal(std::move(type), std::move(bytes)); });
  }

  AttrValue attr_value() {
    skip_spaces();
    const char c = peek();
    if (c == '"') return string();
    if (c == '[') {
      std::vector<std::int64_t> values;
      expect('[');
      while (!accept(']')) {
        if (!values.empty()) expect(',');
        values.push_back(integer<std::int64_t>("an integer"));
      }
      return values;
    }
    if (c == '(') {
      std::vector<double> values;
      expect('(');
      while (!accept(')')) {
        if (!values.empty()) expect(',');
        const AttrValue value = numeric();
        if (!std::holds_alternative<double>(value)) wrong("expected a number with a point");
        values.push_back(std::get<double>(value));
      }
      return values;
    }
    if (accept_word("true")) return true;
    if (accept_word("false")) return false;
    if (c == '-' || is_digit(c) || text_.substr(at_).starts_with("inf") || text_.substr(at_).starts_with("nan"))
      return numeric();
    const DType element = dtype();
    skip_spaces();
    if (peek() == '[') return literal(element);
    return element;
  }

  Attrs attrs() {
    Attrs result;
    if (!accept('{')) return result;
    do {
      skip_spaces();
      std::string name = peek() == '"' ? string() : std::string(word("an attribute name"));
      if (result.find(name) != nullptr) wrong("attribute '{}' is given twice", name);
      expect('=');
      result.set(std::move(name), attr_value());
    } while (accept(','));
    expect('}');
    return result;
  }

  ValueId ref() {
    expect('%');
    ValueId id{integer<NodeId>("a node number"), 0};
    if (peek() == ':') {
      ++at_;
      id.result = integer<std::uint32_t>("a result number");
    }
    checked([&] { return graph_.type(id); });
    return id;
  }

  SourceLine source_line() {
    if (!accept('@')) return {};
    std::string file = string();
    expect(':');
    return {std::move(file), integer<std::uint32_t>("a line number")};
  }

  void parse_node() {
    expect('%');
    const auto id = integer<NodeId>("a node number");
    if (id != graph_.nodes().size()) wrong("expected node %{}; nodes are numbered in order", graph_.nodes().size());
    expect('=');
    Node node;
    const std::string_view op = word("an op");
    checked([&] { node.op = &find_op(op); });
    expect('(');
    while (!accept(')')) {
      if (!node.inputs.empty()) expect(',');
      node.inputs.push_back(ref());
    }
    node.attrs = attrs();
    std::vector<TensorType> types;
    if (accept(':')) {
      do types.push_back(type());
      while (accept(','));
    }
    node.line = source_line();
    if (accept('#')) {
      if (accept_word("backward"))
        node.segment = Segment::Backward;
      else if (accept_word("update"))
        node.segment = Segment::Update;
      else
        wrong("expected 'backward' or 'update'");
    }
    if (accept_word("full")) node.precision = Precision::Full;
    skip_spaces();
    if (peek() == '"') node.name = string();
    end_of_line();

    const Segment written = node.segment;
    checked([&] { GraphAccess::append(graph_, std::move(node)); });
    const Node& made = graph_.node(id);
    if (made.segment != written) wrong("%{} takes an operand of a later segment", id);
    if (made.results.size() != types.size())
      wrong("%{} has {} results, but {} types are written", id, made.results.size(), types.size());
    for (std::size_t i = 0; i < types.size(); ++i) {
      if (made.results[i] != types[i]) {
        wrong("result {} of %{} has type {}, but {} is written", i, id, made.results[i].to_string(),
              types[i].to_string());
      }
    }
  }

  void parse_output() {
    Graph::Output output;
    skip_spaces();
    output.name = string();
    expect('=');
    output.value = ref();
    output.line = source_line();
    end_of_line();
    checked([&] { GraphAccess::add_output(graph_, std::move(output)); });
  }

  std::string_view text_;
  Graph& graph_;
  std::size_t at_ = 0;
};

}  // namespace

std::string Graph::print() const {
  std::string text = std::string(kHeader) + "\n";
  for (NodeId id = 0; id < nodes_.size(); ++id) text += print_node(id, nodes_[id]);
  for (const Output& output : outputs_) {
    text += "output " + quoted(output.name) + " = " + print_ref(output.value) + print_line(output.line) + "\n";
  }
  return text.append(kEnd).append("\n");
}

void parse_graph(std::string_view text, Graph& into) {
  if (!into.nodes().empty())
    fail(ErrorCode::InvalidArgument, "parse_graph needs an empty graph; this one has {} nodes", into.nodes().size());
  Graph graph;
  Parser(text, graph).run();
  // Only a complete text changes the caller's graph.
  GraphAccess::nodes(into).swap(GraphAccess::nodes(graph));
  GraphAccess::outputs(into).swap(GraphAccess::outputs(graph));
  GraphAccess::assigns(into).swap(GraphAccess::assigns(graph));
  GraphAccess::leaves(into).swap(GraphAccess::leaves(graph));
}

}  // namespace aeshna
