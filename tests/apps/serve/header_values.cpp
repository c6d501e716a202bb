// What the values of HTTP's headers mean.
#include "chapters/apps/serve/http/header_values.hpp"

#include "tests/support/check.hpp"

using namespace llm::serve;

TEST_CASE("the type of JSON has any case and any parameters") {
    for (const char* type : {"application/json", "Application/JSON", "application/json;a=b",
                             "application/json \t; charset=utf-8"})
        CHECK_MESSAGE(is_json_type(type), type);
    for (const char* type : {"", "application/jsonp", "application/json5", "application/json x",
                             "text/plain; application/json", "xapplication/json", ";"})
        CHECK_FALSE_MESSAGE(is_json_type(type), type);
}

TEST_CASE("the scheme of a key has any case, spaces follow it") {
    CHECK(bearer_key("Bearer key") == "key");
    CHECK(bearer_key("bEARER   key") == "key");
    CHECK(bearer_key("Bearer key x") == "key x");
    for (const char* other :
         {"", " ", "Bearer", "Bearer ", "Bearerkey", "Basic key", " Bearer key"})
        CHECK_MESSAGE(bearer_key(other).empty(), other);
}

TEST_CASE("a key is visible ASCII without a percent sign") {
    CHECK(is_valid_key("sk-a~!"));
    for (const char* key : {"", "a b", "a\t", "a%41", "ä", "\x7f"})
        CHECK_FALSE_MESSAGE(is_valid_key(key), key);
}

TEST_CASE("keys of different lengths differ, also if one begins like the other") {
    CHECK(equal_in_constant_time("key", "key"));
    CHECK(equal_in_constant_time("", ""));
    for (const char* other : {"", "ke", "keyx", "kez", "aey", "keykey"}) {
        CHECK_FALSE_MESSAGE(equal_in_constant_time("key", other), other);
        CHECK_FALSE_MESSAGE(equal_in_constant_time(other, "key"), other);
    }
    CHECK_FALSE(equal_in_constant_time("key", std::string("key\0", 4)));
}

TEST_CASE("the name of a Host has neither port nor final dot") {
    CHECK(host_name("LocalHost") == "localhost");
    CHECK(host_name("localhost.:80") == "localhost");
    CHECK(host_name("localhost:") == "localhost");
    CHECK(host_name("[::1]:80") == "[::1]");
    CHECK(host_name("[::1]") == "[::1]");
    for (const char* malformed : {"", ":80", "a:80x", "a:80:80", "::1", "localhost:80@b", "."})
        CHECK_MESSAGE(host_name(malformed).empty(), malformed);
    CHECK(host_name("[::1") == "[::1");
    CHECK(host_name("[::1]x:80") == "[::1]x");
}

TEST_CASE("an origin is a scheme, a host and perhaps a port") {
    for (const char* origin :
         {"https://a.example", "http://localhost:5173", "http://[::1]:80", "app://obsidian.md",
          "chrome-extension://abc", "http://127.0.0.1"})
        CHECK_MESSAGE(is_origin(origin), origin);
    for (const char* other :
         {"", "*", "null", "a.example", "//a.example", "https://", "https://a.example/",
          "https://a.example/x", "https://a:b@c", "https://a b", "https://A", "https://*.a",
          "https://a:", "1://a", "https://a:123456", "https://a?", "https://a#b"})
        CHECK_FALSE_MESSAGE(is_origin(other), other);
    CHECK_FALSE(is_origin("https://" + std::string(300, 'a')));
}

TEST_CASE("a length is decimal digits, of any number") {
    CHECK(parse_length("0") == 0);
    CHECK(parse_length("0012") == 12);
    CHECK(parse_length("18446744073709551615") == 18446744073709551615u);
    CHECK(parse_length("18446744073709551617") == 18446744073709551615u);
    for (const char* other : {"", "abc", "-1", "+5", "0x10", "5 ", " 5", "5,5", "1e3"})
        CHECK_FALSE_MESSAGE(parse_length(other), other);
}
