#include "io/nnef/evaluate.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>

#include "base/checked.h"
#include "base/fail.h"
#include "base/names.h"

namespace aeshna::nnef {
namespace {

constexpr std::int64_t kMaxSteps = 1 << 21;  // expressions evaluated, list items and characters made
constexpr int kMaxCalls = 64;                // fragments that call fragments
constexpr int kMaxDepth = 1200;              // expressions being evaluated at once
constexpr int kMaxListDepth = 16;

constexpr std::array<std::pair<std::string_view, std::string_view>, 13> kBinary = {{{"+", "add"},
                                                                                    {"-", "sub"},
                                                                                    {"*", "mul"},
                                                                                    {"/", "div"},
                                                                                    {"^", "pow"},
                                                                                    {"<", "lt"},
                                                                                    {"<=", "le"},
                                                                                    {">", "gt"},
                                                                                    {">=", "ge"},
                                                                                    {"==", "eq"},
                                                                                    {"!=", "ne"},
                                                                                    {"&&", "and"},
                                                                                    {"||", "or"}}};

bool is_number(const Any& v) { return v.get<std::int64_t>() != nullptr || v.get<double>() != nullptr; }
double number(const Any& v) {
  const auto* integer = v.get<std::int64_t>();
  return integer != nullptr ? static_cast<double>(*integer) : *v.get<double>();
}

int depth_of(const std::vector<Any>& items) {
  int depth = 1;
  for (const Any& item : items) {
    if (const List* list = item.get<List>()) depth = std::max(depth, list->depth + 1);
  }
  return depth;
}

/// Of known values; nullopt where they cannot be compared.
std::optional<bool> equal(const Any& a, const Any& b) {
  if (is_number(a) && is_number(b)) return number(a) == number(b);
  if (a.value.index() != b.value.index()) return std::nullopt;
  if (const bool* x = a.get<bool>()) return *x == *b.get<bool>();
  if (const std::string* x = a.get<std::string>()) return *x == *b.get<std::string>();
  const List *x = a.get<List>(), *y = b.get<List>();
  if (x == nullptr) return std::nullopt;
  if (x->items->size() != y->items->size()) return false;
  for (std::size_t i = 0; i < x->items->size(); ++i) {
    const std::optional<bool> same = equal((*x->items)[i], (*y->items)[i]);
    if (!same || !*same) return same;
  }
  return true;
}

class Evaluator {
 public:
  Evaluator(const Document& document, Operations& operations) : document_(document), operations_(operations) {
    for (const Fragment& f : document.fragments) {
      if (operations.declaration(f.name) != nullptr) wrong(f.place, formatted("'{}' is a standard operation", f.name));
      if (!fragments_.emplace(f.name, &f).second) wrong(f.place, formatted("fragment '{}' is defined twice", f.name));
    }
  }

  Names run() {
    Scope scope{.element = {}, .graph = true};
    run_body(document_.graph, scope);
    return std::move(scope.names);
  }

 private:
  struct Scope {
    Names names = {};
    std::optional<Type> element;  ///< of a generic fragment
    bool graph = false;
  };

  [[noreturn]] void wrong(Place place, std::string_view message) const { wrong_at(document_.file, place, message); }
  [[noreturn]] void limit(Place place, std::string_view message) const {
    fail(ErrorCode::LimitExceeded, "{}:{}:{}: {}", document_.file, place.line, place.column, message);
  }
  void spend(Place place, std::int64_t steps) {
    steps_ += steps;
    if (steps < 0 || steps_ > kMaxSteps) limit(place, formatted("more than {} steps to expand the graph", kMaxSteps));
  }

  // ---- statements

  void run_body(const Fragment& f, Scope& scope) {
    for (const Assignment& a : f.body) assign(*a.target, evaluate(*a.value, scope, a.target.get()), scope);
    for (const Parameter& r : f.results) {
      if (!scope.names.contains(r.name)) wrong(r.place, formatted("result '{}' is not assigned", r.name));
    }
    for (const Parameter& p : f.parameters) {
      if (!scope.names.contains(p.name))
        wrong(p.place, formatted("parameter '{}' of the graph is assigned by no 'external'", p.name));
    }
  }

  void assign(const Expr& target, const Any& value, Scope& scope) {
    if (target.kind == Expr::Kind::Name) {
      if (!scope.names.emplace(target.text, value).second)
        wrong(target.place, formatted("'{}' is assigned twice", target.text));
      return;
    }
    if (value.get<Unknown>() != nullptr) {
      for (const ExprPtr& item : target.items) assign(*item, value, scope);
      return;
    }
    const List* list = value.get<List>();
    const bool tuple = target.kind == Expr::Kind::Tuple;
    if (list == nullptr || list->tuple != tuple)
      wrong(target.place, formatted("expected {} to assign to these names, found {}", tuple ? "a tuple" : "an array",
                                    type_text(value)));
    if (list->items->size() != target.items.size())
      wrong(target.place, formatted("{} names for {} values", target.items.size(), list->items->size()));
    for (std::size_t i = 0; i < target.items.size(); ++i) assign(*target.items[i], (*list->items)[i], scope);
  }

  // ---- expressions

  Any evaluate(const Expr& e, Scope& scope, const Expr* target = nullptr) {
    spend(e.place, 1);
    if (++depth_ > kMaxDepth) limit(e.place, "expressions and fragments are nested too deeply");
    Any result = evaluate_kind(e, scope, target);
    --depth_;
    return result;
  }

  Any evaluate_kind(const Expr& e, Scope& scope, const Expr* target) {
    switch (e.kind) {
      case Expr::Kind::Integer:
        return e.integer;
      case Expr::Kind::Scalar:
        return e.scalar;
      case Expr::Kind::Logical:
        return e.logical;
      case Expr::Kind::String:
        return e.text;
      case Expr::Kind::Name:
        return lookup(e, scope);
      case Expr::Kind::Array:
      case Expr::Kind::Tuple: {
        std::vector<Any> items;
        for (const ExprPtr& item : e.items) items.push_back(evaluate(*item, scope));
        return list(std::move(items), e.kind == Expr::Kind::Tuple, e.place);
      }
      case Expr::Kind::Subscript:
        return subscript(e, scope);
      case Expr::Kind::Unary:
        return unary(e, scope);
      case Expr::Kind::Binary:
        return binary(e, scope);
      case Expr::Kind::IfElse: {
        const Any condition = evaluate(*e.items[0], scope);
        if (condition.unknown()) return {};
        return evaluate(logical(condition, e.items[0]->place, "the condition") ? *e.items[1] : *e.items[2], scope,
                        target);
      }
      case Expr::Kind::Comprehension:
        return comprehension(e, scope);
      case Expr::Kind::Builtin:
        return builtin(e, scope);
      case Expr::Kind::Call:
        return call(e, scope, target);
    }
    return {};
  }

  Any list(std::vector<Any> items, bool tuple, Place place) {
    spend(place, static_cast<std::int64_t>(items.size()));
    if (depth_of(items) > kMaxListDepth) limit(place, formatted("lists nested deeper than {}", kMaxListDepth));
    return tuple ? make_tuple(std::move(items)) : make_array(std::move(items));
  }

  Any lookup(const Expr& e, const Scope& scope) {
    const auto found = scope.names.find(e.text);
    if (found != scope.names.end()) {
      if (const std::string* text = found->second.get<std::string>())
        spend(e.place, static_cast<std::int64_t>(text->size()));
      return found->second;
    }
    std::vector<std::string> names;
    for (const auto& [name, value] : scope.names) names.push_back(name);
    wrong(e.place, formatted("'{}' is not defined{}", e.text, suggest_names(e.text, names)));
  }

  bool logical(const Any& v, Place place, std::string_view what) const {
    const bool* value = v.get<bool>();
    if (value == nullptr) wrong(place, formatted("{} must be logical, not {}", what, type_text(v)));
    return *value;
  }
  std::int64_t integer(const Any& v, Place place, std::string_view what) const {
    const std::int64_t* value = v.get<std::int64_t>();
    if (value == nullptr) wrong(place, formatted("{} must be an integer, not {}", what, type_text(v)));
    return *value;
  }

  Any subscript(const Expr& e, Scope& scope) {
    const Any sequence = evaluate(*e.items[0], scope);
    const Any first = e.items[1] ? evaluate(*e.items[1], scope) : Any(std::int64_t{0});
    if (sequence.get<Unknown>() != nullptr || first.unknown()) return {};
    const List* items = sequence.get<List>();
    const std::string* text = sequence.get<std::string>();
    if (items == nullptr && text == nullptr) wrong(e.place, formatted("a subscript of {}", type_text(sequence)));
    const auto size = static_cast<std::int64_t>(items != nullptr ? items->items->size() : text->size());
    const auto position = [&](const Any& v, std::int64_t last) {
      std::int64_t at = integer(v, e.place, "a subscript");
      if (at < 0) at += size;
      if (at < 0 || at > last)
        wrong(e.place, formatted("subscript {} is out of range for {} items", integer(v, e.place, ""), size));
      return at;
    };
    if (!e.range) {
      const std::int64_t at = position(first, size - 1);
      if (items != nullptr) return (*items->items)[static_cast<std::size_t>(at)];
      return text->substr(static_cast<std::size_t>(at), 1);
    }
    const Any last = e.items[2] ? evaluate(*e.items[2], scope) : Any(size);
    if (last.unknown()) return {};
    const std::int64_t begin = position(first, size), end = position(last, size);
    if (end < begin) wrong(e.place, formatted("the range [{}:{}] runs backward", begin, end));
    if (text != nullptr) return text->substr(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin));
    return list({items->items->begin() + begin, items->items->begin() + end}, false, e.place);
  }

  Any comprehension(const Expr& e, Scope& scope) {
    const std::size_t n = e.targets.size();
    std::vector<Any> iterables;
    for (std::size_t i = 0; i < n; ++i) {
      iterables.push_back(evaluate(*e.items[i], scope));
      if (iterables[i].get<Unknown>() != nullptr) return {};
      const List* items = iterables[i].get<List>();
      if (items == nullptr || items->tuple)
        wrong(e.items[i]->place, formatted("expected an array, found {}", type_text(iterables[i])));
      const std::size_t count = items->items->size(), first = iterables[0].get<List>()->items->size();
      if (count != first) wrong(e.items[i]->place, formatted("arrays of {} and {} items side by side", first, count));
    }
    std::vector<Any> results;
    for (std::size_t k = 0; k < iterables[0].get<List>()->items->size(); ++k) {
      for (std::size_t i = 0; i < n; ++i) assign(*e.targets[i], (*iterables[i].get<List>()->items)[k], scope);
      const Any keep = e.items[n] ? evaluate(*e.items[n], scope) : Any(true);
      if (keep.unknown() || logical(keep, e.place, "the condition"))
        results.push_back(evaluate(*e.items[n + 1], scope));
      for (std::size_t i = 0; i < n; ++i) forget(*e.targets[i], scope);
    }
    return list(std::move(results), false, e.place);
  }

  static void forget(const Expr& target, Scope& scope) {
    if (target.kind == Expr::Kind::Name) scope.names.erase(target.text);
    for (const ExprPtr& item : target.items) forget(*item, scope);
  }

  Any builtin(const Expr& e, Scope& scope) {
    const Any x = evaluate(*e.items[0], scope);
    if (x.get<Unknown>() != nullptr) return {};
    const List* items = x.get<List>();
    const std::string* text = x.get<std::string>();
    if (e.text == "shape_of") {
      const Tensor* tensor = x.get<Tensor>();
      if (items != nullptr || text != nullptr)
        wrong(e.place, formatted("shape_of needs a tensor, not {}", type_text(x)));
      std::vector<Any> dims;
      if (tensor != nullptr) dims.assign(tensor->value.shape().begin(), tensor->value.shape().end());
      return list(std::move(dims), false, e.place);
    }
    if (e.text == "length_of" || e.text == "range_of") {
      if ((items == nullptr || items->tuple) && text == nullptr)
        wrong(e.place, formatted("{} needs an array or a string, not {}", e.text, type_text(x)));
      const auto size = static_cast<std::int64_t>(items != nullptr ? items->items->size() : text->size());
      if (e.text == "length_of") return size;
      std::vector<Any> range;
      for (std::int64_t i = 0; i < size; ++i) range.emplace_back(i);
      return list(std::move(range), false, e.place);
    }
    return converted(e, x);
  }

  /// integer(x), scalar(x), logical(x), string(x).
  Any converted(const Expr& e, const Any& x) const {
    const bool* truth = x.get<bool>();
    const std::int64_t* whole = x.get<std::int64_t>();
    if (e.text == "integer") {
      if (truth != nullptr) return std::int64_t{*truth};
      if (whole != nullptr) return *whole;
      const double* real = x.get<double>();
      if (real != nullptr && std::abs(*real) < 9e18) return static_cast<std::int64_t>(*real);
    } else if (e.text == "scalar") {
      if (truth != nullptr) return *truth ? 1.0 : 0.0;
      if (is_number(x)) return number(x);
    } else if (e.text == "logical") {
      if (truth != nullptr) return *truth;
      if (is_number(x)) return number(x) != 0;
    } else if (e.text == "string") {
      if (x.get<std::string>() != nullptr) return x;
      if (truth != nullptr) return std::string(*truth ? "true" : "false");
      if (whole != nullptr) return std::to_string(*whole);
      if (const double* real = x.get<double>()) return formatted("{}", *real);
    }
    wrong(e.place, formatted("{} cannot be made of {}", e.text, type_text(x)));
  }

  // ---- operators

  Any unary(const Expr& e, Scope& scope) {
    const Any x = evaluate(*e.items[0], scope);
    if (x.get<Unknown>() != nullptr) return {};
    const std::int64_t* whole = x.get<std::int64_t>();
    if (e.text == "+" && (is_number(x) || x.get<Tensor>() != nullptr)) return x;
    if (e.text == "-" && whole != nullptr && *whole != INT64_MIN) return -*whole;
    if (e.text == "-" && is_number(x)) return -number(x);
    if (e.text == "!" && x.get<bool>() != nullptr) return !*x.get<bool>();
    if (x.get<Tensor>() != nullptr) return operation(e.text == "-" ? "neg" : "not", {x}, e.place, scope);
    wrong(e.place, formatted("'{}' has no meaning for {}", e.text, type_text(x)));
  }

  Any binary(const Expr& e, Scope& scope) {
    const Any a = evaluate(*e.items[0], scope);
    if (const bool* left = a.get<bool>();
        left != nullptr && (e.text == "&&" || e.text == "||") && *left == (e.text == "||"))
      return *left;
    const Any b = evaluate(*e.items[1], scope);
    if (a.get<Unknown>() != nullptr || b.get<Unknown>() != nullptr) return {};
    const auto meaningless = [&] {
      wrong(e.place, formatted("'{}' has no meaning for {} and {}", e.text, type_text(a), type_text(b)));
    };
    if (a.get<Tensor>() != nullptr || b.get<Tensor>() != nullptr) {
      const auto found =
          std::ranges::find(kBinary, std::string_view(e.text), &std::pair<std::string_view, std::string_view>::first);
      if (found == kBinary.end()) meaningless();
      return operation(found->second, {a, b}, e.place, scope);
    }
    if (a.get<bool>() != nullptr && b.get<bool>() != nullptr && (e.text == "&&" || e.text == "||"))
      return *b.get<bool>();
    if (e.text == "in") return contains(a, b, e.place);
    if (e.text == "==" || e.text == "!=") {
      if (const List* items = a.get<List>()) spend(e.place, static_cast<std::int64_t>(items->items->size()));
      const std::optional<bool> same = equal(a, b);
      if (!same) meaningless();
      return *same == (e.text == "==");
    }
    if (std::optional<Any> made = sequences(e, a, b)) return *made;
    if (!is_number(a) || !is_number(b)) meaningless();
    if (a.get<std::int64_t>() != nullptr && b.get<std::int64_t>() != nullptr)
      return integers(e, *a.get<std::int64_t>(), *b.get<std::int64_t>());
    return scalars(e, number(a), number(b));
  }

  Any contains(const Any& item, const Any& array, Place place) {
    const List* items = array.get<List>();
    if (items == nullptr) wrong(place, formatted("'in' needs an array, not {}", type_text(array)));
    spend(place, static_cast<std::int64_t>(items->items->size()));
    return std::ranges::any_of(*items->items, [&](const Any& other) { return equal(item, other).value_or(false); });
  }

  /// Strings and arrays are joined by + and repeated by *.
  std::optional<Any> sequences(const Expr& e, const Any& a, const Any& b) {
    const std::string *s = a.get<std::string>(), *t = b.get<std::string>();
    const List *x = a.get<List>(), *y = b.get<List>();
    if ((x != nullptr && x->tuple) || (y != nullptr && y->tuple)) return std::nullopt;
    if (e.text == "+" && s != nullptr && t != nullptr) {
      spend(e.place, static_cast<std::int64_t>(s->size() + t->size()));
      return *s + *t;
    }
    if (e.text == "+" && x != nullptr && y != nullptr) {
      std::vector<Any> items = *x->items;
      items.insert(items.end(), y->items->begin(), y->items->end());
      return list(std::move(items), false, e.place);
    }
    const std::int64_t* times = b.get<std::int64_t>();
    if (e.text != "*" || times == nullptr || (s == nullptr && x == nullptr)) return std::nullopt;
    const std::size_t size = s != nullptr ? s->size() : x->items->size();
    if (*times < 0) wrong(e.place, formatted("repeated {} times", *times));
    if (*times > kMaxSteps || (size > 0 && *times > kMaxSteps / static_cast<std::int64_t>(size)))
      spend(e.place, kMaxSteps);
    spend(e.place, static_cast<std::int64_t>(size) * *times);
    if (s != nullptr) {
      std::string text;
      for (std::int64_t i = 0; i < *times; ++i) text += *s;
      return text;
    }
    std::vector<Any> items;
    for (std::int64_t i = 0; i < *times && size > 0; ++i) items.insert(items.end(), x->items->begin(), x->items->end());
    return list(std::move(items), false, e.place);
  }

  Any integers(const Expr& e, std::int64_t a, std::int64_t b) const {
    try {
      if (e.text == "+") return checked_add(a, b, "the sum");
      if (e.text == "-" && b != INT64_MIN) return checked_add(a, -b, "the difference");
      if (e.text == "*") return checked_mul(a, b, "the product");
      if (e.text == "^" && b >= 0) {
        std::int64_t power = 1;
        for (std::int64_t i = 0; i < std::min<std::int64_t>(b, 64); ++i) power = checked_mul(power, a, "the power");
        if (b > 64 && (a < -1 || a > 1)) fail(ErrorCode::LimitExceeded, "the power overflows");
        return b > 64 && a == -1 && b % 2 != 0 ? -power : power;
      }
    } catch (const Error& error) {
      limit(e.place, error.message());
    }
    if (e.text == "/" && b == 0) wrong(e.place, "division by zero");
    if (e.text == "/" && !(a == INT64_MIN && b == -1)) return a / b;
    if (e.text == "<") return a < b;
    if (e.text == "<=") return a <= b;
    if (e.text == ">") return a > b;
    if (e.text == ">=") return a >= b;
    wrong(e.place, formatted("{} {} {} is no integer that can be computed", a, e.text, b));
  }

  Any scalars(const Expr& e, double a, double b) const {
    if (e.text == "+") return a + b;
    if (e.text == "-") return a - b;
    if (e.text == "*") return a * b;
    if (e.text == "/") return a / b;
    if (e.text == "^") return std::pow(a, b);
    if (e.text == "<") return a < b;
    if (e.text == "<=") return a <= b;
    if (e.text == ">") return a > b;
    if (e.text == ">=") return a >= b;
    wrong(e.place, formatted("'{}' has no meaning for scalars", e.text));
  }

  // ---- calls

  Any operation(std::string_view name, std::vector<Any> arguments, Place place, const Scope& scope) {
    const Fragment& declaration = *operations_.declaration(name);
    return finish(declaration, std::move(arguments), scope.element, place, nullptr, scope);
  }

  Any call(const Expr& e, Scope& scope, const Expr* target) {
    const Fragment* f = operations_.declaration(e.text);
    const auto own = fragments_.find(e.text);
    if (own != fragments_.end()) f = own->second;
    if (f == nullptr) {
      std::vector<std::string> names = operations_.names();
      for (const auto& [name, fragment] : fragments_) names.push_back(name);
      wrong(e.place, formatted("there is no operation '{}'{}", e.text, suggest_names(e.text, names)));
    }
    std::optional<Type> element = e.element ? e.element : f->generic_default;
    if (e.element && !f->generic) wrong(e.place, formatted("{} is not generic", f->name));
    if (element && element->kind == Type::Kind::Generic) element = scope.element;

    std::vector<std::optional<Any>> given(f->parameters.size());
    for (std::size_t i = 0; i < e.items.size(); ++i) {
      std::size_t at = i;
      if (!e.names[i].empty()) {
        at = static_cast<std::size_t>(std::ranges::find(f->parameters, e.names[i], &Parameter::name) -
                                      f->parameters.begin());
        if (at == f->parameters.size()) {
          std::vector<std::string> names;
          for (const Parameter& p : f->parameters) names.push_back(p.name);
          wrong(e.items[i]->place,
                formatted("{} has no parameter '{}'{}", f->name, e.names[i], suggest_names(e.names[i], names)));
        }
      } else if (i > 0 && !e.names[i - 1].empty()) {
        wrong(e.items[i]->place, "expected a named argument after a named argument");
      } else if (at >= given.size()) {
        wrong(e.items[i]->place, formatted("{} has {} parameters", f->name, given.size()));
      }
      if (given[at]) wrong(e.items[i]->place, formatted("'{}' of {} is given twice", f->parameters[at].name, f->name));
      given[at] = evaluate(*e.items[i], scope);
    }
    std::vector<Any> arguments;
    for (std::size_t i = 0; i < given.size(); ++i) {
      if (!given[i] && !f->parameters[i].fallback)
        wrong(e.place, formatted("{} needs '{}'", f->name, f->parameters[i].name));
      Scope none{.element = {}, .graph = false};
      arguments.push_back(given[i] ? std::move(*given[i]) : evaluate(*f->parameters[i].fallback, none));
    }
    return finish(*f, std::move(arguments), std::move(element), e.place, target, scope);
  }

  Any finish(const Fragment& f, std::vector<Any> arguments, std::optional<Type> element, Place place,
             const Expr* target, const Scope& scope) {
    for (std::size_t i = 0; i < arguments.size(); ++i) {
      const Parameter& p = f.parameters[i];
      if (const List* items = arguments[i].get<List>()) spend(place, static_cast<std::int64_t>(items->items->size()));
      if (!fit(arguments[i], p.type, element)) {
        wrong(place,
              formatted("'{}' of {} must be {}, not {}", p.name, f.name, p.type.to_string(), type_text(arguments[i])));
      }
    }
    std::vector<Any> results;
    if (f.has_body) {
      results = expand(f, std::move(arguments), element, place);
    } else {
      const bool known = std::ranges::none_of(arguments, &Any::unknown);
      // What is computed from unknown values is unknown; the operation itself may be worth a line in the list nevertheless.
      results = operations_.call({f, std::move(arguments), std::move(element), place, target, scope.graph});
      if (!known) results.assign(f.results.size(), Any());
    }
    if (results.size() == 1) return std::move(results[0]);
    return make_tuple(std::move(results));
  }

  std::vector<Any> expand(const Fragment& f, std::vector<Any> arguments, const std::optional<Type>& element,
                          Place place) {
    if (++calls_ > kMaxCalls)
      limit(place, formatted("fragments call each other deeper than {}: '{}'", kMaxCalls, f.name));
    Scope scope{.element = element, .graph = false};
    for (std::size_t i = 0; i < arguments.size(); ++i)
      scope.names.emplace(f.parameters[i].name, std::move(arguments[i]));
    try {
      run_body(f, scope);
    } catch (Error& error) {
      if (error.contexts().size() < 8)
        error.context(formatted("fragment '{}', called at {}:{}:{}", f.name, document_.file, place.line, place.column));
      throw;
    }
    std::vector<Any> results;
    std::optional<Type> bound = element;
    for (const Parameter& r : f.results) {
      Any& value = scope.names.find(r.name)->second;
      if (!fit(value, r.type, bound))
        wrong(r.place, formatted("result '{}' of {} is declared {}, but is {}", r.name, f.name, r.type.to_string(),
                                 type_text(value)));
      results.push_back(value);
    }
    --calls_;
    return results;
  }

  /// Whether the value is of the type, or becomes so by taking an integer for a scalar. A generic type is bound to what it meets.
  static bool fit(Any& v, const Type& type, std::optional<Type>& element) {
    if (v.get<Unknown>() != nullptr) return true;
    switch (type.kind) {
      case Type::Kind::Integer:
        return v.get<std::int64_t>() != nullptr;
      case Type::Kind::Scalar:
        if (v.get<std::int64_t>() != nullptr) v = number(v);
        return v.get<double>() != nullptr;
      case Type::Kind::Logical:
        return v.get<bool>() != nullptr;
      case Type::Kind::String:
        return v.get<std::string>() != nullptr;
      case Type::Kind::Generic:
        if (element) return fit(v, *element, element);
        if (v.get<List>() != nullptr || v.get<Tensor>() != nullptr) return false;
        element = Type{.kind = v.get<double>() != nullptr         ? Type::Kind::Scalar
                               : v.get<std::int64_t>() != nullptr ? Type::Kind::Integer
                               : v.get<bool>() != nullptr         ? Type::Kind::Logical
                                                                  : Type::Kind::String};
        return true;
      case Type::Kind::Tensor:
        return fit_tensor(v, type, element);
      case Type::Kind::Array:
      case Type::Kind::Tuple:
        break;
    }
    const List* list = v.get<List>();
    const bool tuple = type.kind == Type::Kind::Tuple;
    if (list == nullptr || list->tuple != tuple || (tuple && list->items->size() != type.items.size())) return false;
    std::vector<Any> items = *list->items;
    for (std::size_t i = 0; i < items.size(); ++i) {
      if (!fit(items[i], tuple ? type.items[i] : type.items[0], element)) return false;
    }
    v = tuple ? make_tuple(std::move(items)) : make_array(std::move(items));
    return true;
  }

  static bool fit_tensor(Any& v, const Type& type, std::optional<Type>& element) {
    const Tensor* tensor = v.get<Tensor>();
    if (tensor == nullptr) {  // a known value stands for a tensor of rank 0
      if (v.get<List>() != nullptr || v.get<std::string>() != nullptr) return false;
      return type.items.empty() || fit(v, type.items[0], element);
    }
    if (type.items.empty()) return true;
    const Type own{.kind = element_of(tensor->value.dtype())};
    if (type.items[0].kind != Type::Kind::Generic) return own.kind == type.items[0].kind;
    if (!element) element = own;
    return own.kind == element->kind;
  }

  const Document& document_;
  Operations& operations_;
  std::map<std::string, const Fragment*, std::less<>> fragments_;
  std::int64_t steps_ = 0;
  int depth_ = 0, calls_ = 0;
};

}  // namespace

bool Any::unknown() const {
  if (const List* list = get<List>()) return std::ranges::any_of(*list->items, &Any::unknown);
  return get<Unknown>() != nullptr;
}

Any make_array(std::vector<Any> items) {
  const int depth = depth_of(items);
  return List{false, std::make_shared<const std::vector<Any>>(std::move(items)), depth};
}
Any make_tuple(std::vector<Any> items) {
  const int depth = depth_of(items);
  return List{true, std::make_shared<const std::vector<Any>>(std::move(items)), depth};
}

std::string type_text(const Any& value) {
  if (value.get<std::int64_t>() != nullptr) return "integer";
  if (value.get<double>() != nullptr) return "scalar";
  if (value.get<bool>() != nullptr) return "logical";
  if (value.get<std::string>() != nullptr) return "string";
  if (const Tensor* tensor = value.get<Tensor>())
    return Type{.kind = Type::Kind::Tensor, .items = {Type{.kind = element_of(tensor->value.dtype())}}}.to_string();
  const List* list = value.get<List>();
  if (list == nullptr) return "unknown";
  if (!list->tuple) return (list->items->empty() ? std::string() : type_text(list->items->front())) + "[]";
  std::string text = "(";
  for (const Any& item : *list->items) text += (text.size() == 1 ? "" : ", ") + type_text(item);
  return text + ")";
}

Type::Kind element_of(DType dtype) {
  return dtype == DType::boolean ? Type::Kind::Logical : dtype == DType::i32 ? Type::Kind::Integer : Type::Kind::Scalar;
}
DType dtype_of(Type::Kind element) {
  return element == Type::Kind::Logical ? DType::boolean : element == Type::Kind::Integer ? DType::i32 : DType::f32;
}

Names evaluate(const Document& document, Operations& operations) { return Evaluator(document, operations).run(); }

}  // namespace aeshna::nnef
