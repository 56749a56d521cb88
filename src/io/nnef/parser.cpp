// The grammar of NNEF by recursive descent. Nesting is bounded, so that neither parsing nor walking the tree can exhaust the stack.
#include <algorithm>
#include <array>
#include <charconv>

#include "base/fail.h"
#include "io/nnef/lexer.h"

namespace aeshna::nnef {
namespace {

constexpr int kMaxDepth = 100;      // of expressions and types
constexpr int kMaxNodes = 1 << 20;  // expressions and types of the text
constexpr std::size_t kMaxParameters = 1000;

constexpr std::array<std::string_view, 19> kKeywords = {
    "version", "extension", "graph", "fragment", "tensor", "integer", "scalar",    "logical",  "string",  "true",
    "false",   "for",       "in",    "if",       "else",   "yield",   "length_of", "shape_of", "range_of"};
constexpr std::array<std::string_view, 7> kBuiltins = {"shape_of", "length_of", "range_of", "integer",
                                                       "scalar",   "logical",   "string"};

/// Operators of two operands that bind equally, loosest first; ^ is apart since a sign binds looser than it.
constexpr std::array<std::array<std::string_view, 7>, 4> kLevels = {
    {{"&&", "||"}, {"<", "<=", ">", ">=", "==", "!=", "in"}, {"+", "-"}, {"*", "/"}}};

class Parser {
 public:
  Parser(std::string_view text, std::string file) : lexer_(text, std::move(file)) {}

  Document document() {
    Document d;
    d.file = lexer_.file();
    expect("version");
    if (token().kind != Token::Kind::Scalar && token().kind != Token::Kind::Integer) wrong("a version number");
    d.version = token().text;
    if (d.version != "1.0") {
      fail(ErrorCode::Unsupported, "{}:{}:{}: version {} of NNEF; 1.0 is supported", d.file, token().place.line,
           token().place.column, d.version);
    }
    lexer_.next();
    expect(";");
    while (token().is("extension")) extension(d);
    while (token().is("fragment")) {
      if (!fragments_) not_enabled("a fragment definition", kFragmentExtension);
      d.fragments.push_back(fragment());
    }
    d.graph = graph();
    if (token().kind != Token::Kind::End) wrong("the end of the file");
    return d;
  }

  Fragment signature(std::string_view name) {
    Fragment f;
    f.name = name;
    f.place = token().place;
    head(f, true);
    if (token().kind != Token::Kind::End) wrong("the end of the signature");
    return f;
  }

 private:
  // ---- tokens

  const Token& token() const { return lexer_.token(); }
  [[noreturn]] void wrong(std::string_view expected) const {
    wrong_at(lexer_.file(), token().place, formatted("expected {}, found {}", expected, token().found()));
  }
  [[noreturn]] void not_enabled(std::string_view what, std::string_view extension) const {
    wrong_at(lexer_.file(), token().place, formatted("{} needs 'extension {};'", what, extension));
  }
  bool accept(std::string_view sign) {
    if (!token().is(sign)) return false;
    lexer_.next();
    return true;
  }
  void expect(std::string_view sign) {
    if (!accept(sign)) wrong(formatted("'{}'", sign));
  }
  bool at_name() const {
    return token().kind == Token::Kind::Name && std::ranges::find(kKeywords, token().text) == kKeywords.end();
  }
  std::string name(std::string_view what) {
    if (!at_name()) wrong(what);
    std::string text(token().text);
    lexer_.next();
    return text;
  }

  /// Counts what recursion has open.
  class Deeper {
   public:
    explicit Deeper(Parser& parser) : parser_(parser) {
      if (++parser_.depth_ > kMaxDepth) {
        fail(ErrorCode::LimitExceeded, "{}:{}:{}: nested deeper than {}", parser_.lexer_.file(),
             parser_.token().place.line, parser_.token().place.column, kMaxDepth);
      }
    }
    ~Deeper() { --parser_.depth_; }
    Deeper(const Deeper&) = delete;
    Deeper& operator=(const Deeper&) = delete;

   private:
    Parser& parser_;
  };

  // ---- declarations

  void extension(Document& d) {
    lexer_.next();
    do {
      const Place place = token().place;
      std::string text = name("the name of an extension");
      if (text == kFragmentExtension) {
        fragments_ = true;
      } else if (text == kOperatorExtension) {
        operators_ = true;
      } else {
        fail(ErrorCode::Unsupported, "{}:{}:{}: extension {} is not supported", d.file, place.line, place.column, text);
      }
      d.extensions.push_back(std::move(text));
    } while (!token().is(";") && token().kind != Token::Kind::End);
    expect(";");
  }

  Fragment fragment() {
    lexer_.next();
    Fragment f;
    f.place = token().place;
    f.name = name("the name of the fragment");
    head(f, true);
    if (!accept(";")) body(f);
    return f;
  }

  Fragment graph() {
    expect("graph");
    Fragment f;
    f.place = token().place;
    f.name = name("the name of the graph");
    head(f, false);
    body(f);
    return f;
  }

  void head(Fragment& f, bool typed) {
    if (typed && accept("<")) {
      f.generic = true;
      expect("?");
      if (accept("=")) f.generic_default = primitive();
      expect(">");
    }
    f.parameters = parameters(typed, true);
    expect("->");
    f.results = parameters(typed, false);
    if (f.results.empty()) wrong_at(lexer_.file(), f.place, formatted("'{}' has no result", f.name));
    for (const Parameter& r : f.results) {
      if (std::ranges::any_of(f.parameters, [&](const Parameter& p) { return p.name == r.name; }))
        wrong_at(lexer_.file(), r.place, formatted("'{}' is a parameter and a result", r.name));
    }
  }

  std::vector<Parameter> parameters(bool typed, bool defaults) {
    std::vector<Parameter> list;
    expect("(");
    if (accept(")")) return list;
    do {
      Parameter p;
      p.place = token().place;
      p.name = name("a parameter's name");
      if (list.size() == kMaxParameters) {
        fail(ErrorCode::LimitExceeded, "{}:{}:{}: more than {} parameters", lexer_.file(), p.place.line, p.place.column,
             kMaxParameters);
      }
      count_node(p.place);
      if (std::ranges::any_of(list, [&](const Parameter& q) { return q.name == p.name; }))
        wrong_at(lexer_.file(), p.place, formatted("'{}' is declared twice", p.name));
      p.type = {.kind = Type::Kind::Tensor};
      if (typed) {
        expect(":");
        p.type = type();
      }
      if (typed && defaults && accept("=")) p.fallback = expression();
      list.push_back(std::move(p));
    } while (accept(","));
    expect(")");
    return list;
  }

  Type primitive() {
    struct Named {
      std::string_view name;
      Type::Kind kind;
    };
    static constexpr std::array<Named, 5> table = {{{"integer", Type::Kind::Integer},
                                                    {"scalar", Type::Kind::Scalar},
                                                    {"logical", Type::Kind::Logical},
                                                    {"string", Type::Kind::String},
                                                    {"?", Type::Kind::Generic}}};
    for (const Named& n : table) {
      if (accept(n.name)) return {.kind = n.kind};
    }
    wrong("a type");
  }

  Type type() {
    const Deeper deeper(*this);
    count_node(token().place);
    Type t;
    if (accept("(")) {
      t.kind = Type::Kind::Tuple;
      do t.items.push_back(type());
      while (accept(","));
      expect(")");
    } else if (accept("tensor")) {
      t.kind = Type::Kind::Tensor;
      expect("<");
      if (!token().is(">")) t.items.push_back(primitive());
      expect(">");
    } else {
      t = primitive();
    }
    for (int arrays = 0; accept("["); ++arrays) {
      if (arrays == kMaxDepth) wrong("a type of fewer dimensions");
      expect("]");
      Type array{.kind = Type::Kind::Array};
      array.items.push_back(std::move(t));
      t = std::move(array);
    }
    return t;
  }

  void body(Fragment& f) {
    f.has_body = true;
    expect("{");
    while (!accept("}")) {
      Assignment a;
      a.target = targets();
      if (!token().is("=")) wrong("'=' or ','");
      lexer_.next();
      a.value = expression();
      if (!token().is(";")) wrong(operators_ ? "';' or an operator" : "';'");
      lexer_.next();
      f.body.push_back(std::move(a));
    }
  }

  /// a | a, b | (a, b) | [a, b]
  ExprPtr targets() {
    ExprPtr first = target();
    if (!token().is(",")) return first;
    ExprPtr tuple = make(Expr::Kind::Tuple, first->place);
    tuple->items.push_back(std::move(first));
    while (accept(",")) tuple->items.push_back(target());
    return sealed(std::move(tuple));
  }

  ExprPtr target() {
    const Deeper deeper(*this);
    const Place place = token().place;
    if (at_name()) {
      ExprPtr e = make(Expr::Kind::Name, place);
      e->text = name("a name");
      return e;
    }
    const bool tuple = token().is("(");
    if (!tuple && !token().is("[")) wrong("a name to assign to, '(' or '['");
    lexer_.next();
    ExprPtr e = make(tuple ? Expr::Kind::Tuple : Expr::Kind::Array, place);
    do e->items.push_back(target());
    while (accept(","));
    expect(tuple ? ")" : "]");
    return sealed(std::move(e));
  }

  // ---- expressions

  /// Trees take far more memory than their text.
  void count_node(Place place) {
    if (++nodes_ > kMaxNodes) {
      fail(ErrorCode::LimitExceeded, "{}:{}:{}: more than {} expressions and types", lexer_.file(), place.line,
           place.column, kMaxNodes);
    }
  }

  ExprPtr make(Expr::Kind kind, Place place) {
    count_node(place);
    auto e = std::make_unique<Expr>();
    e->kind = kind;
    e->place = place;
    return e;
  }

  /// Operators chain without recursion, so that trees could get deeper than the recursion that built them.
  ExprPtr sealed(ExprPtr e) const {
    for (const ExprPtr& item : e->items) e->depth = std::max(e->depth, item ? item->depth + 1 : 1);
    if (e->depth > kMaxDepth) {
      fail(ErrorCode::LimitExceeded, "{}:{}:{}: an expression nested deeper than {}", lexer_.file(), e->place.line,
           e->place.column, kMaxDepth);
    }
    return e;
  }

  void need_operators(std::string_view what) const {
    if (!operators_) not_enabled(what, kOperatorExtension);
  }

  ExprPtr expression(bool may_select = true) {
    const Deeper deeper(*this);
    ExprPtr value = binary(0);
    if (!may_select || !token().is("if")) return value;
    need_operators("if ... else");
    lexer_.next();
    ExprPtr e = make(Expr::Kind::IfElse, value->place);
    e->items.push_back(expression());
    e->items.push_back(std::move(value));
    expect("else");
    e->items.push_back(expression());
    return sealed(std::move(e));
  }

  ExprPtr joined(std::string_view op, ExprPtr left, ExprPtr right) {
    ExprPtr e = make(Expr::Kind::Binary, left->place);
    e->text = op;
    e->items.push_back(std::move(left));
    e->items.push_back(std::move(right));
    return sealed(std::move(e));
  }

  ExprPtr binary(std::size_t level) {
    if (level == kLevels.size()) return unary();
    ExprPtr left = binary(level + 1);
    for (;;) {
      const auto op =
          std::ranges::find_if(kLevels[level], [&](std::string_view s) { return !s.empty() && token().is(s); });
      if (op == kLevels[level].end()) return left;
      need_operators("an operator");
      lexer_.next();
      left = joined(*op, std::move(left), binary(level + 1));
    }
  }

  ExprPtr unary() {
    const Place place = token().place;
    const std::string op(token().text);
    if (token().is("-") || token().is("!") || token().is("+")) {
      const Deeper deeper(*this);
      lexer_.next();
      const bool number = token().kind == Token::Kind::Integer || token().kind == Token::Kind::Scalar;
      if (!number || op == "!") need_operators("an operator");
      ExprPtr e = make(Expr::Kind::Unary, place);
      e->text = op;
      e->items.push_back(unary());
      return sealed(std::move(e));
    }
    ExprPtr left = postfix();
    while (token().is("^")) {
      need_operators("an operator");
      lexer_.next();
      const Deeper deeper(*this);
      left = joined("^", std::move(left), token().is("-") || token().is("+") ? unary() : postfix());
    }
    return left;
  }

  ExprPtr postfix() {
    ExprPtr e = primary();
    while (token().is("[")) {
      need_operators("a subscript");
      ExprPtr s = make(Expr::Kind::Subscript, token().place);
      lexer_.next();
      ExprPtr first, last;
      if (!token().is(":")) first = expression();
      s->range = accept(":");
      if (s->range && !token().is("]")) last = expression();
      expect("]");
      s->items.push_back(std::move(e));
      s->items.push_back(std::move(first));
      s->items.push_back(std::move(last));
      e = sealed(std::move(s));
    }
    return e;
  }

  template <class T>
  T number() {
    T value{};
    const std::string_view text = token().text;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size())
      wrong_at(lexer_.file(), token().place, formatted("{} is too large or too small a number", token().found()));
    lexer_.next();
    return value;
  }

  ExprPtr primary() {
    const Place place = token().place;
    switch (token().kind) {
      case Token::Kind::Integer: {
        ExprPtr e = make(Expr::Kind::Integer, place);
        e->integer = number<std::int64_t>();
        return e;
      }
      case Token::Kind::Scalar: {
        ExprPtr e = make(Expr::Kind::Scalar, place);
        e->scalar = number<double>();
        return e;
      }
      case Token::Kind::String: {
        ExprPtr e = make(Expr::Kind::String, place);
        e->text = token().text;
        lexer_.next();
        return e;
      }
      default:
        break;
    }
    if (token().is("true") || token().is("false")) {
      ExprPtr e = make(Expr::Kind::Logical, place);
      e->logical = token().is("true");
      lexer_.next();
      return e;
    }
    if (token().is("[")) return array();
    if (token().is("(")) return tuple();
    if (token().kind == Token::Kind::Name && std::ranges::find(kBuiltins, token().text) != kBuiltins.end())
      return builtin();
    if (!at_name()) wrong("an expression");
    return name_or_call();
  }

  ExprPtr array() {
    const Place place = token().place;
    lexer_.next();
    if (token().is("for")) return comprehension(place);
    ExprPtr e = make(Expr::Kind::Array, place);
    if (accept("]")) return e;
    do e->items.push_back(expression());
    while (accept(","));
    if (!accept("]")) wrong("',' or ']'");
    return sealed(std::move(e));
  }

  ExprPtr tuple() {
    const Place place = token().place;
    lexer_.next();
    ExprPtr first = expression();
    if (accept(")")) return first;
    ExprPtr e = make(Expr::Kind::Tuple, place);
    e->items.push_back(std::move(first));
    while (accept(",")) e->items.push_back(expression());
    if (!accept(")")) wrong("',' or ')'");
    return sealed(std::move(e));
  }

  ExprPtr comprehension(Place place) {
    need_operators("a comprehension");
    lexer_.next();
    ExprPtr e = make(Expr::Kind::Comprehension, place);
    do {
      e->targets.push_back(target());
      expect("in");
      e->items.push_back(expression(false));
    } while (accept(","));
    e->items.push_back(accept("if") ? expression() : nullptr);
    expect("yield");
    e->items.push_back(expression());
    expect("]");
    return sealed(std::move(e));
  }

  ExprPtr builtin() {
    need_operators(formatted("'{}'", token().text));
    ExprPtr e = make(Expr::Kind::Builtin, token().place);
    e->text = token().text;
    lexer_.next();
    expect("(");
    e->items.push_back(expression());
    expect(")");
    return sealed(std::move(e));
  }

  /// "f<scalar>(" is a call, "a < b" is not: a type can only follow where it is one.
  ExprPtr name_or_call() {
    ExprPtr e = make(Expr::Kind::Name, token().place);
    e->text = name("a name");
    if (token().is("<")) {
      const Lexer before = lexer_;
      lexer_.next();
      if (token().is("integer") || token().is("scalar") || token().is("logical") || token().is("string") ||
          token().is("?")) {
        Type element = primitive();
        if (accept(">")) {
          e->element = std::move(element);
          if (!token().is("(")) wrong("'('");
        }
      }
      if (!e->element) lexer_ = before;
    }
    if (!accept("(")) return e;
    e->kind = Expr::Kind::Call;
    if (accept(")")) return e;
    do {
      std::string argument;
      if (at_name()) {
        const Lexer before = lexer_;
        argument = name("a name");
        if (!accept("=")) {
          argument.clear();
          lexer_ = before;
        }
      }
      e->names.push_back(std::move(argument));
      e->items.push_back(expression());
    } while (accept(","));
    if (!accept(")")) wrong("',' or ')'");
    return sealed(std::move(e));
  }

  Lexer lexer_;
  int depth_ = 0, nodes_ = 0;
  bool fragments_ = false, operators_ = false;
};

}  // namespace

std::string Type::to_string() const {
  switch (kind) {
    case Kind::Integer:
      return "integer";
    case Kind::Scalar:
      return "scalar";
    case Kind::Logical:
      return "logical";
    case Kind::String:
      return "string";
    case Kind::Generic:
      return "?";
    case Kind::Tensor:
      return "tensor<" + (items.empty() ? std::string() : items[0].to_string()) + ">";
    case Kind::Array:
      return items[0].to_string() + "[]";
    case Kind::Tuple:
      break;
  }
  std::string text = "(";
  for (const Type& item : items) text += (text.size() == 1 ? "" : ", ") + item.to_string();
  return text + ")";
}

Document parse_document(std::string_view text, const std::string& file) { return Parser(text, file).document(); }

Fragment parse_signature(std::string_view name, std::string_view signature) {
  return Parser(signature, "the signature of " + std::string(name)).signature(name);
}

}  // namespace aeshna::nnef
