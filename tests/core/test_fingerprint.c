/* test_fingerprint.c - what changes from message to message is taken out of an error; what tells causes apart stays. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <cmocka.h>
#include "base/random.h"
#include "core/fingerprint.h"
#include "core/normalise.h"

static const struct {
	const char *text, *wanted;
} texts[] = {
	{"order 4711 not found", "order <n> not found"},
	{"took 1.5s, limit 300ms", "took <n>, limit <n>"},
	{"at 2026-11-30T15:38:46.123Z and 2026-11-30 15:38:46", "at <n> and <n>"},
	{"user 9b2d1f04-53c8-4a8e-9a53-7f0b2f9b4a11 is locked", "user <id> is locked"},
	{"object Foo@1a2b3c4d at 0x7fff12ab", "object Foo@<n> at <n>"},
	{"digest deadbeef12345678 differs", "digest <n> differs"},
	{"GET https://u:p@pay.example:8443/a/b?c=1#d failed", "GET https://pay.example<path> failed"},
	{"connect 10.1.2.3:5432 refused", "connect <n> refused"},
	{"mail to ann.lee+x@shop.example.org bounced", "mail to <email> bounced"},
	{"open /srv/app-2/spool/8.tar: denied", "open <path>: denied"},
	{"open C:\\data\\in.csv: denied", "open <path>: denied"},
	{"panic at src/main.rs:32:8", "panic at <path>:<n>"},
	{"rows [1, 2, 3] and [4, 5]", "rows [<n>] and [<n>]"},
	{"no column \"amount\" in table 'orders'", "no column \"amount\" in table 'orders'"},
	{"invalid value 'blue' for field 'color'", "invalid value '<q>' for field 'color'"},
	{"no stock of SKU-4411 for o-17", "no stock of <n> for <n>"},
	{"body {\"a\": {\"b\": 1}} refused", "body <json> refused"},
	{"too   many\n\t blanks ", "too many blanks"},
	{"upstream said 503 Service Unavailable", "upstream said 503 Service Unavailable"},
	{"status code 502 after 502 ms", "status code 502 after <n> ms"},
	{"bad utf8 in sha256 of int64", "bad utf8 in sha256 of int64"},
	{"can't go on", "can't go on"},
	{"<html><h1>502 Bad Gateway</h1><hr>web/1.22</html>", "502 Bad Gateway web"},
	{"订单 9007 不存在", "订单 <n> 不存在"},
	{"an 'open quote", "an 'open quote"},
	{"'", "'"},
	{"", ""},
};

static void text_loses_what_changes_and_keeps_names(void **state)
{
	struct rdv_buffer b;

	rdv_buffer_init(&b, 0);
	for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
		rdv_buffer_clear(&b);
		rdv_normalise(rdv_slice_text(texts[i].text), &b);
		assert_string_equal(rdv_buffer_string(&b), texts[i].wanted);
	}
	rdv_buffer_done(&b);
}

static const struct {
	const char *stack, *wanted;
} stacks[] = {
	{"x.E: boom\n\tat java.base/java.util.Objects.requireNonNull(Objects.java:209)\n\tat "
	 "app//shop.Zip.code(Zip.java:5)\n"
	 "\tat shop.Main.main(Main.java:1)",
	 "shop.Zip.code"},
	{"x.Wrap: no\n\tat shop.A.a(A.java:1)\nCaused by: x.Deep: why\n\tat org.springframework.X.y(X.java:2)\n\tat "
	 "shop.B.b(B.java:3)\n"
	 "\t... 4 more",
	 "shop.B.b"},
	{"TypeError: x\n    at Array.map (<anonymous>)\n    at total (/srv/app/cart.js:30:8)\n    at "
	 "node:internal/main:1:1",
	 "total"},
	{"Error: x\n    at async f (/srv/node_modules/y/z.js:1:1)\n    at async pay (/srv/pay.js:2:2)", "pay"},
	{"Traceback (most recent call last):\n  File \"/app/w.py\", line 1, in run\n    f()\n  File \"/app/s.py\", "
	 "line 9, in total\n"
	 "  File \"/v/site-packages/lib/a.py\", line 3, in deep\nE: x",
	 "total"},
	{"/usr/lib/ruby/3.1.0/net/http.rb:1:in `open': x (E)\n\tfrom /app/shop.rb:67:in `read'\n\tfrom "
	 "/app/shop.rb:1:in `main'",
	 "read"},
	{"#0 /srv/vendor/x.php(1): Lib->a()\n#1 /srv/shop.php(27): Cart->total(1)\n#2 {main}", "Cart->total"},
	{"goroutine 1 [running]:\nruntime.gopanic(0x1)\n\t/usr/local/go/src/runtime/panic.go:1 "
	 "+0x1\nshop.(*Cart).Total(0x2)\n"
	 "\t/srv/cart.go:9 +0x2",
	 "shop.(*Cart).Total"},
	{"   0: rust_begin_unwind\n             at /rustc/1/lib.rs:1\n   1: core::panicking::panic\n   2: "
	 "shop::total\n   3: shop::main",
	 "shop::total"},
	{"#0  0x00007f in raise () from libc.so\n#1  0x0001 in settle (left=1) at ledger.c:31", "settle"},
	{"   at System.Net.Http.Send(String s)\n   at Shop.Cart.Total(Int32 n) in /src/Cart.cs:line 7",
	 "Shop.Cart.Total"},
	{"no trace at all", ""},
	{"", ""},
};

static void frame_is_the_innermost_of_the_users_code(void **state)
{
	for (size_t i = 0; i < sizeof stacks / sizeof stacks[0]; i++) {
		char got[128];
		rdv_slice_to_text(rdv_stack_frame(rdv_slice_text(stacks[i].stack)), got, sizeof got);
		assert_string_equal(got, stacks[i].wanted);
	}
}

static uint64_t of(const char *class, const char *code, const char *text, const char *stack)
{
	struct rdv_failure f = {.class = rdv_slice_text(class),
				.code = rdv_slice_text(code),
				.text = rdv_slice_text(text),
				.stack = rdv_slice_text(stack)};

	return rdv_fingerprint("r", &f);
}

static void one_cause_has_one_fingerprint(void **state)
{
	assert_int_equal(of("E", "1", "order 1 late", ""), of("E", "1", "order 234 late", ""));
	assert_int_equal(of("E", "", "x", "at shop.A.b(A.java:1)"), of("E", "", "x", "at shop.A.b(A.java:99)"));
}

static void other_causes_have_others(void **state)
{
	struct rdv_failure f = {.text = rdv_slice_text("x")};
	uint64_t base = of("E", "1", "x", "at shop.A.b(A.java:1)");

	assert_int_not_equal(base, of("F", "1", "x", "at shop.A.b(A.java:1)"));
	assert_int_not_equal(base, of("E", "2", "x", "at shop.A.b(A.java:1)"));
	assert_int_not_equal(base, of("E", "1", "y", "at shop.A.b(A.java:1)"));
	assert_int_not_equal(base, of("E", "1", "x", "at shop.A.c(A.java:1)"));
	assert_int_not_equal(rdv_fingerprint("a", &f), rdv_fingerprint("b", &f));
}

/* pitfall: the recorded class is always the framework's wrapper */
static void root_cause_counts_before_its_wrapper(void **state)
{
	struct rdv_failure a = {.class = rdv_slice_text("Wrapper"), .root_class = rdv_slice_text("TimeoutException")};
	struct rdv_failure b = {.class = rdv_slice_text("Other"), .root_class = rdv_slice_text("TimeoutException")};

	assert_int_equal(rdv_fingerprint("r", &a), rdv_fingerprint("r", &b));
	assert_int_not_equal(of("W", "", "", "W: x\nCaused by: A: 1\n"), of("W", "", "", "W: x\nCaused by: B: 1\n"));
}

static void a_failure_without_words_is_hashed_like_any(void **state)
{
	static const char long_route[300] = {[0 ... 298] = 'r'};
	struct rdv_failure f = {.class = rdv_slice_text("Timeout"), .code = rdv_slice_text("503")};
	struct rdv_buffer all;

	assert_int_equal(rdv_fingerprint("r", &f), rdv_xxh3(rdv_slice("\1r\7Timeout\003503\0\0", 16)));
	rdv_buffer_init(&all, 0);
	rdv_buffer_prefixed(&all, rdv_slice_text(long_route));
	rdv_buffer_prefixed(&all, f.class);
	rdv_buffer_prefixed(&all, f.code);
	rdv_buffer_append(&all, "\0\0", 2);
	assert_int_equal(rdv_fingerprint(long_route, &f), rdv_xxh3(rdv_buffer_as_slice(&all)));
	rdv_buffer_done(&all);
}

static void text_form_is_versioned_and_parses_back(void **state)
{
	char text[RDV_FINGERPRINT_TEXT];
	uint64_t v;

	rdv_fingerprint_format(0x9f86d081884c7d65, text);
	assert_string_equal(text, "v1:9f86d081884c7d65");
	assert_true(rdv_fingerprint_parse(rdv_slice_text(text), &v));
	assert_true(v == 0x9f86d081884c7d65);
	assert_false(rdv_fingerprint_parse(rdv_slice_text("v2:9f86d081884c7d65"), &v));
	assert_false(rdv_fingerprint_parse(rdv_slice_text("v1:9f86d081884c7d6"), &v));
	assert_false(rdv_fingerprint_parse(rdv_slice_text("v1:9f86d081884c7d6g"), &v));
}

/* Version 1 of the hash: a change here needs a new version, since stored letters are grouped by it. */
static void fingerprint_of_a_sample_never_changes(void **state)
{
	assert_true(of("TimeoutException", "504", "no answer within 30 s from http://stock:80/a", "") ==
		    0xce498620de6bbe0e);
}

static void any_bytes_give_bounded_text(void **state)
{
	static const char bytes[] = "aZ09 '\"`/\\{}[]<>@:.-_\n\t\xe4\xb8\xad\xff\0";
	struct rdv_random r;
	struct rdv_buffer b;

	rdv_random_seed(&r, 5);
	rdv_buffer_init(&b, 0);
	for (int i = 0; i < 3000; i++) {
		size_t size = rdv_random_below(&r, i % 100 ? 200 : 6000) + 1;
		uint8_t *text = malloc(size);
		for (size_t k = 0; k < size; k++)
			text[k] = (uint8_t)bytes[rdv_random_below(&r, sizeof bytes)];
		rdv_buffer_clear(&b);
		rdv_normalise(rdv_slice(text, size), &b);
		assert_true(!b.failed && rdv_utf8_count(rdv_buffer_as_slice(&b)) <= RDV_ERROR_TEXT_CHARS);
		assert_true(rdv_stack_frame(rdv_slice(text, size)).size <= size);
		free(text);
	}
	rdv_buffer_done(&b);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(text_loses_what_changes_and_keeps_names),
		cmocka_unit_test(frame_is_the_innermost_of_the_users_code),
		cmocka_unit_test(one_cause_has_one_fingerprint),
		cmocka_unit_test(other_causes_have_others),
		cmocka_unit_test(root_cause_counts_before_its_wrapper),
		cmocka_unit_test(a_failure_without_words_is_hashed_like_any),
		cmocka_unit_test(text_form_is_versioned_and_parses_back),
		cmocka_unit_test(fingerprint_of_a_sample_never_changes),
		cmocka_unit_test(any_bytes_give_bounded_text),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
