#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "matches.h"

namespace heddle::grammar {
namespace {

using testing::HasSubstr;

struct SchemaCase {
  const char* schema;
  std::vector<std::string> valid;
  std::vector<std::string> invalid;
};

void check(const std::vector<SchemaCase>& cases) {
  for (const auto& [schema, valid, invalid] : cases) {
    SCOPED_TRACE(schema);
    for (const std::string& text : valid) EXPECT_TRUE(schema_matches(schema, text)) << text;
    for (const std::string& text : invalid) EXPECT_FALSE(schema_matches(schema, text)) << text;
  }
}

TEST(JsonSchema, TypesAndValues) {
  check({
      {"true", {"null", "1.5", R"({"a": [1, {}]})"}, {"", "nul", "tru"}},
      {"{}", {R"("x")", "[]"}, {"x"}},
      {R"({"type": "null"})", {"null"}, {"0"}},
      {R"({"type": "boolean"})", {"true", "false"}, {"null"}},
      {R"({"type": "integer"})", {"12", "-3"}, {"1.5", "\"1\""}},
      {R"({"type": ["integer", "null"]})", {"12", "null"}, {"true"}},
      {R"({"type": "number", "minimum": 0, "maximum": 1})", {"0", "1", "0.25"}, {"1.1", "-0.5", "2"}},
      {R"({"const": {"a": [1, "x"]}})", {R"({"a": [1, "x"]})", "{\"a\":[1,\"x\"]}"}, {R"({"a": [1]})"}},
      {R"({"enum": ["a", "ab", 1, null, [true]]})", {R"("a")", R"("ab")", "1", "null", "[true]"}, {R"("b")", "[]"}},
      {R"({"enum": [1, 2, 30, "x"], "type": "integer", "maximum": 20})", {"1", "2"}, {"30", "\"x\""}},
      {R"({"enum": [1, 2], "const": 2.0})", {"2.0"}, {"1", "1.0"}},
  });
}

TEST(JsonSchema, Strings) {
  check({
      {R"({"type": "string"})",
       {R"("")", R"("a\"b\\")", R"("\n\u0001/\/")", "\"\u00e9\U0001F600\""},
       {R"("a)", "\"\n\"", R"("\x")", R"("\u00e9")", "\"\xff\""}},
      {R"({"type": "string", "minLength": 2, "maxLength": 3})",
       {R"("ab")", R"("a\"")", "\"\u00e9\u20ac\U0001F600\""},
       {R"("a")", R"("abcd")"}},
      {R"({"type": "string", "maxLength": 1000000})", {R"("abc")"}, {}},
      {R"({"type": "string", "pattern": "^a+$"})", {R"("a")", R"("aaa")"}, {R"("")", R"("ab")"}},
      {R"({"type": "string", "pattern": "b"})", {R"("b")", R"("abc")"}, {R"("ac")"}},
      {R"({"type": "string", "pattern": "^.b", "maxLength": 3, "minLength": 3})",
       {R"("abc")"},
       {R"("ab")", R"("abcd")"}},
      {R"({"type": "string", "pattern": "^[\"\\\\]\n$"})", {R"("\"\n")", R"("\\\n")"}, {R"("a\n")"}},
      {R"({"allOf": [{"type": "string", "pattern": "a"}, {"pattern": "b"}]})", {R"("ab")", R"("xbya")"}, {R"("a")"}},
      {R"({"type": "string", "format": "date"})",
       {R"("2024-02-29")", R"("1999-12-31")"},
       {R"("2023-02-29")", R"("2024-13-01")", R"("2024-04-31")", R"("1900-02-29")"}},
      {R"({"type": "string", "format": "date-time"})", {R"("2024-02-29T12:00:00Z")"}, {R"("2024-02-29 12:00:00")"}},
      {R"({"type": "string", "format": "ipv4"})", {R"("192.168.0.255")"}, {R"("256.1.1.1")", R"("1.2.3")"}},
      {R"({"type": "string", "format": "uuid"})", {R"("123e4567-e89b-12d3-a456-426614174000")"}, {R"("123")"}},
      {R"({"type": "string", "format": "email"})", {R"("a.b@example.org")"}, {R"("a@")", R"("@b")"}},
  });
}

TEST(JsonSchema, Objects) {
  check({
      {R"({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "null"}}, "required": ["b"]})",
       {R"({"a": 1, "b": null})", R"({"b":null})", "{\n  \"a\": 1,\n  \"b\": null\n}"},
       {R"({"a": 1})", R"({"b": null, "a": 1})", R"({"b": null, "c": 1})", R"({"a": 1 , "b": null})", "{}",
        "{\n                 \"b\":null}"}},
      {R"({"properties": {"a": {"const": 1}, "b": {"const": 2}, "c": {"const": 3}}})",
       {"{}", R"({"a": 1})", R"({"b": 2})", R"({"a": 1, "c": 3})", R"({"b": 2, "c": 3})"},
       {R"({"c": 3, "a": 1})", R"({,"a": 1})", R"({"a": 1,})"}},
      {R"({"type": "object", "additionalProperties": {"type": "integer"}})",
       {"{}", R"({"x": 1})", R"({"x": 1, "y": 2})", R"({"": 0})"},
       {R"({"x": null})"}},
      {R"({"properties": {"a": {"const": 1}, "ab": true}, "additionalProperties": {"type": "null"}})",
       {R"({"a": 1, "abc": null})", R"({"b": null})", R"({"A": null, "\"": null})"},
       {R"({"a": null})", R"({"b": 1})", R"({"b": null, "a": 1})"}},
      {R"({"type": "object", "required": ["z"], "additionalProperties": {"type": "integer"}})",
       {R"({"z": 1})", R"({"z": 1, "b": 2})"},
       {"{}", R"({"b": 2})"}},
      {R"({"properties": {"a": false, "b": {"const": 1}}})", {"{}", R"({"b": 1})"}, {R"({"a": 1})"}},
      {R"({"properties": {"q\"\n": {"const": 1}}})", {R"({"q\"\n": 1})"}, {}},
  });
}

TEST(JsonSchema, Arrays) {
  check({
      {R"({"type": "array", "items": {"type": "integer"}})",
       {"[]", "[1]", "[1, 2]", "[1,2,3]", "[\n  1,\n  2\n]"},
       {"[1,]", "[,1]", "[null]"}},
      {R"({"type": "array", "items": {"const": 1}, "minItems": 2, "maxItems": 3})",
       {"[1,1]", "[1,1,1]"},
       {"[]", "[1]", "[1,1,1,1]"}},
      {R"({"type": "array", "maxItems": 0})", {"[]"}, {"[1]"}},
      {R"({"type": "array", "items": {"const": 1}, "maxItems": 1})", {"[]", "[1]"}, {"[1,1]"}},
      {R"({"prefixItems": [{"const": 1}, {"const": 2}], "items": {"const": 3}})",
       {"[]", "[1]", "[1,2]", "[1,2,3,3]"},
       {"[2]", "[1,3]", "[1,2,2]"}},
      {R"({"prefixItems": [{"const": 1}, {"const": 2}], "items": false, "minItems": 1})",
       {"[1]", "[1,2]"},
       {"[]", "[1,2,3]"}},
      {R"({"prefixItems": [{"const": 1}, {"const": 2}], "maxItems": 1})", {"[]", "[1]"}, {"[1,2]"}},
      {R"({"prefixItems": [{"const": 1}], "minItems": 3, "items": {"const": 3}})", {"[1,3,3]"}, {"[1,3]"}},
  });
}

TEST(JsonSchema, Combinations) {
  check({
      {R"({"anyOf": [{"type": "integer"}, {"const": "x"}]})", {"1", "\"x\""}, {"null"}},
      {R"({"oneOf": [{"type": "integer"}, {"type": "string"}]})", {"1", "\"x\""}, {"null"}},
      {R"({"oneOf": [{"properties": {"k": {"const": "a"}, "x": {"type": "null"}}, "required": ["k"]},
                    {"properties": {"k": {"const": "b"}}, "required": ["k"]}]})",
       {R"({"k": "a", "x": null})", R"({"k": "b"})"},
       {R"({"k": "b", "x": null})", R"({"k": "c"})"}},
      {R"({"oneOf": [{"type": "integer", "maximum": 3}, {"type": "integer", "exclusiveMinimum": 3}]})", {"3", "4"}, {}},
      {R"({"allOf": [{"properties": {"a": {"type": "integer"}}, "required": ["a"]},
                    {"properties": {"a": {"minimum": 5}, "b": {"type": "null"}}}]})",
       {R"({"a": 5})", R"({"a": 7, "b": null})"},
       {R"({"a": 4})", R"({"b": null})"}},
      {R"({"allOf": [{"anyOf": [{"type": "integer"}, {"type": "null"}]}, {"anyOf": [{"type": "null"}, {"type": "string"}]}]})",
       {"null"},
       {"1", "\"a\""}},
      {R"({"properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
          "anyOf": [{"required": ["a"]}, {"required": ["b"]}]})",
       {R"({"a": 1})", R"({"b": 1})", R"({"a": 1, "b": 2})"},
       {"{}"}},
      {R"({"type": "integer", "minimum": 3, "allOf": [{"maximum": 5}]})", {"3", "5"}, {"2", "6"}},
  });
}

TEST(JsonSchema, References) {
  check({
      {R"({"$ref": "#/$defs/x", "$defs": {"x": {"type": "integer"}}})", {"1"}, {"null"}},
      {R"({"$ref": "#/$defs/a~1b%20c", "$defs": {"a/b c": {"const": 1}}})", {"1"}, {"2"}},
      {R"({"$ref": "#/$defs/x", "maximum": 3, "$defs": {"x": {"type": "integer", "minimum": 2}}})",
       {"2", "3"},
       {"1", "4"}},
      {R"({"type": "object", "properties": {"v": {"type": "integer"}, "next": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}},
          "required": ["v", "next"]})",
       {R"({"v": 1, "next": null})", R"({"v": 1, "next": {"v": 2, "next": {"v": 3, "next": null}}})"},
       {R"({"v": 1, "next": {}})", R"({"v": 1})"}},
      {R"({"$defs": {"t": {"type": "array", "items": {"$ref": "#/$defs/t"}, "maxItems": 2}}, "$ref": "#/$defs/t"})",
       {"[]", "[[],[[],[]]]"},
       {"[[],[],[]]", "[1]"}},
  });
}

TEST(JsonSchema, NamesWhatItDoesNotSupportAndWhere) {
  const struct {
    const char* schema;
    const char* message;
  } cases[] = {
      {R"({"type": "object", "properties": {"a/b": {"not": {}}}})",
       "test: #/properties/a~1b: the keyword \"not\" is not supported"},
      {R"({"anyOf": [{}, {"patternProperties": {}}]})", "#/anyOf/1: the keyword \"patternProperties\""},
      {R"({"if": {}})", "the keyword \"if\""},
      {R"({"type": "array", "uniqueItems": true})", "uniqueItems is not supported"},
      {R"({"type": "array", "items": {"multipleOf": 2}})", "#/items: the keyword \"multipleOf\""},
      {R"({"type": "integer", "x": 1})", "the keyword \"x\""},
      {R"({"type": "string", "format": "iri"})", "format \"iri\" is not supported"},
      {R"({"type": "text"})", "\"text\" is no type"},
      {R"x({"type": "string", "pattern": "(?=a)"})x", "#: pattern: at byte 2 of the expression: look-ahead"},
      {R"({"type": "string", "minLength": -1})", "minLength is -1"},
      {R"({"type": "string", "pattern": 3})", "pattern is 3, expected a string"},
      {R"({"$ref": "http://example.org/x"})", "only parts of the same schema"},
      {R"({"$ref": "#/$defs/x"})", "there is no such part"},
      {R"({"$ref": "#"})", "refers to itself"},
      {R"({"anyOf": [{"type": "null"}, {"$ref": "#"}]})", "refers to itself"},
      {R"({"allOf": [{"$ref": "#/$defs/a"}], "$defs": {"a": {"anyOf": [{"$ref": "#"}]}}})", "refers to itself"},
      {R"({"oneOf": [{"type": "integer"}, {"type": "number"}]})",
       "oneOf: a value might match both of its schemas 0 and 1"},
      {R"({"type": "integer", "minimum": 5, "maximum": 4})", "matches nothing"},
      {R"({"properties": {"a": {"$ref": "#"}}, "required": ["a"]})", "matches nothing"},
      {"false", "matches nothing"},
      {R"({"enum": []})", "matches nothing"},
      {"[]", "expected a schema"},
      {R"({"properties": {"a": 3}})", "#/properties/a: expected a schema"},
      {R"({"required": [1]})", "a list of names"},
      {R"({"anyOf": []})", "a list of schemas"},
      {"{", "test"},
      {R"({"type": "string", "pattern": "^(a|b)*a(a|b){20}$"})", "more than"},
      {R"({"type": "string", "pattern": "x", "maxLength": 1000000})", "more than"},
  };
  for (const auto& [schema, message] : cases) {
    SCOPED_TRACE(schema);
    try {
      schema_matches(schema, "");
      ADD_FAILURE() << "no error";
    } catch (const InputError& error) {
      EXPECT_THAT(error.what(), HasSubstr(message));
      EXPECT_TRUE(std::string_view(error.what()).starts_with("test")) << error.what();
    }
  }
}

TEST(JsonObject, IsAnyObject) {
  const GrammarSource source{};
  for (const char* text : {"{}", R"({"a": [1, {"b": null}]})", "{\n  \"a\": -1.5e3\n}"})
    EXPECT_TRUE(matches(source, text)) << text;
  for (const char* text : {"[]", "1", "{", "{} ", R"({"a"})"}) EXPECT_FALSE(matches(source, text)) << text;
}

// Deep nesting ends before a reader's stack does.
TEST(JsonObject, HasABoundedDepth) {
  Matcher matcher(compile_grammar({}, "test"));
  ASSERT_TRUE(matcher.accept("{\"a\":"));
  int depth = 0;
  while (depth < 1000 && matcher.accept("[")) ++depth;
  EXPECT_GE(depth, 40);
  EXPECT_LE(depth, 64);
  for (; depth > 0; --depth) ASSERT_TRUE(matcher.accept("]"));
  EXPECT_TRUE(matcher.accept("}"));
  EXPECT_TRUE(matcher.accepting());
  EXPECT_FALSE(matcher.continues());
}

TEST(JsonSchema, ALongStringKeepsItsTableSmall) {
  Matcher matcher(compile_grammar(
      {.kind = GrammarSource::Kind::json_schema, .text = R"({"type": "string", "maxLength": 200000})"}, "test"));
  ASSERT_TRUE(matcher.accept("\""));
  for (int i = 0; i < 200'000; ++i) ASSERT_TRUE(matcher.accept("x"));
  EXPECT_FALSE(matcher.accept("x"));
  EXPECT_TRUE(matcher.accept("\""));
  EXPECT_TRUE(matcher.accepting());
}

}  // namespace
}  // namespace heddle::grammar
