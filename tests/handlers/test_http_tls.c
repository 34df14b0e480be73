/* test_http_tls.c - TLS and mutual TLS with real certificates, made by `openssl` for this run, against Python's ssl
 * server. What is wrong with a certificate must be a TLS failure, never an answer. */
#include "http_world.h"
#include <sys/wait.h>

static char dir[] = "/tmp/redrive-tls-XXXXXX";

/* A certificate authority, a server certificate for 127.0.0.1, one for another name, and a client's. */
static const char make_certificates[] =
	"set -e; cd %s; exec >/dev/null 2>&1\n"
	"ca() { openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=$1 -keyout $1.key -out $1.pem; }\n"
	"leaf() { openssl req -newkey rsa:2048 -nodes -subj /CN=$1 -keyout $1.key -out $1.csr; printf \"$2\" > $1.ext\n"
	"  openssl x509 -req -in $1.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile $1.ext -out $1.pem; "
	"}\n"
	"ca ca; ca stranger; leaf server subjectAltName=IP:127.0.0.1; leaf elsewhere "
	"subjectAltName=DNS:elsewhere.test; leaf client "
	"extendedKeyUsage=clientAuth\n";

static const char server_script[] =
	"import http.server, ssl, sys, threading\n"
	"class H(http.server.BaseHTTPRequestHandler):\n"
	"  protocol_version = 'HTTP/1.1'\n"
	"  def do_POST(self):\n"
	"    body = self.rfile.read(int(self.headers['Content-Length']))\n"
	"    peer = self.connection.getpeercert()\n"
	"    name = peer['subject'][0][0][1] if peer else 'nobody'\n"
	"    self.send_response(200)\n"
	"    out = name.encode() + b' ' + body\n"
	"    self.send_header('Content-Length', str(len(out)))\n"
	"    self.end_headers()\n"
	"    self.wfile.write(out)\n"
	"  def log_message(self, *a): pass\n"
	"s = http.server.ThreadingHTTPServer(('127.0.0.1', 0), H)\n"
	"s.handle_error = lambda *a: None\n"
	"c = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)\n"
	"c.load_cert_chain(sys.argv[1] + '.pem', sys.argv[1] + '.key')\n"
	"if sys.argv[2] == 'mutual':\n"
	"  c.verify_mode = ssl.CERT_REQUIRED\n"
	"  c.load_verify_locations('ca.pem')\n"
	"s.socket = c.wrap_socket(s.socket, server_side=True, do_handshake_on_connect=False)\n"
	"print(s.server_address[1], flush=True)\n"
	"threading.Thread(target=s.serve_forever, daemon=True).start()\n"
	"sys.stdin.read()\n";

struct tls_server {
	pid_t pid;
	int in, port;
};

static struct tls_server start_tls(const char *certificate, const char *mode)
{
	struct tls_server s;
	int in[2], out[2];
	char text[16] = "";

	assert_int_equal(pipe(in), 0);
	assert_int_equal(pipe(out), 0);
	s.pid = fork();
	if (s.pid == 0) {
		dup2(in[0], 0);
		dup2(out[1], 1);
		close(in[0]);
		close(in[1]);
		close(out[0]);
		close(out[1]);
		if (chdir(dir) == 0)
			execlp("python3", "python3", "-c", server_script, certificate, mode, (char *)NULL);
		_exit(127);
	}
	close(in[0]);
	close(out[1]);
	s.in = in[1];
	for (size_t size = 0; !strchr(text, '\n'); size++)
		assert_int_equal(read(out[0], text + size, 1), 1);
	close(out[0]);
	s.port = atoi(text);
	assert_true(s.port > 0);
	return s;
}

static void stop_tls(struct tls_server *s)
{
	close(s->in); /* it ends when its input does */
	assert_int_equal(waitpid(s->pid, NULL, 0), s->pid);
}

static const char *path(const char *name, char out[128])
{
	if (!name)
		return NULL;
	snprintf(out, 128, "%s/%s", dir, name);
	return out;
}

static void each_trust_is_judged_rightly(void **state)
{
	static const struct {
		const char *certificate, *mode, *ca, *cert, *key;
		enum rdv_transport transport;
		const char *answer; /* when there is one */
	} table[] = {
		{"server", "plain", "ca.pem", NULL, NULL, RDV_TRANSPORT_ANSWER, "nobody hello"},
		{"server", "plain", NULL, NULL, NULL, RDV_TRANSPORT_TLS, NULL},
		{"server", "plain", "stranger.pem", NULL, NULL, RDV_TRANSPORT_TLS, NULL},
		{"elsewhere", "plain", "ca.pem", NULL, NULL, RDV_TRANSPORT_TLS, NULL},
		{"server", "mutual", "ca.pem", "client.pem", "client.key", RDV_TRANSPORT_ANSWER, "client hello"},
		{"server", "mutual", "ca.pem", "client.pem", "server.key", RDV_TRANSPORT_TLS, NULL},
	};

	for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
		struct tls_server s = start_tls(table[i].certificate, table[i].mode);
		struct http_world w = {.server = server_start(server_ok)};
		char url[64], ca[128], cert[128], key[128];
		struct rdv_http_options options = {.url = url,
						   .ca_file = path(table[i].ca, ca),
						   .cert_file = path(table[i].cert, cert),
						   .key_file = path(table[i].key, key)};

		snprintf(url, sizeof url, "https://127.0.0.1:%d/", s.port);
		http_open_with(&w, options);
		for (uint64_t n = 1; n <= 3; n++) { /* the second and third by the same connection */
			struct rdv_call *c = http_send(&w, kit_call(n, NULL));

			if (c->answer.transport != table[i].transport)
				fail_msg("row %zu: transport %d: %.*s", i, (int)c->answer.transport,
					 (int)c->answer.failure.text.size, (const char *)c->answer.failure.text.data);
			if (table[i].answer)
				assert_true(kit_text_is(c->answer.answer, table[i].answer));
			kit_free(c);
		}
		http_close(&w);
		stop_tls(&s);
	}
}

/* With TLS 1.3 the server refuses after the handshake, so that ours sees a broken connection or an alert: never an
 * answer. */
static void a_client_without_the_wanted_certificate_gets_no_answer(void **state)
{
	struct tls_server s = start_tls("server", "mutual");
	struct http_world w = {.server = server_start(server_ok)};
	char url[64], ca[128];
	struct rdv_call *c;

	snprintf(url, sizeof url, "https://127.0.0.1:%d/", s.port);
	http_open_with(&w, (struct rdv_http_options){.url = url, .ca_file = path("ca.pem", ca)});
	c = http_send(&w, kit_call(1, NULL));
	assert_true(c->answer.transport == RDV_TRANSPORT_TLS || c->answer.transport == RDV_TRANSPORT_RESET);
	kit_free(c);
	http_close(&w);
	stop_tls(&s);
}

static void plain_http_behind_an_https_url_is_a_tls_failure(void **state)
{
	struct http_world w = {.server = server_start(server_raw)};
	struct rdv_call *c;
	char url[64];

	w.server->raw = "HTTP/1.1 200 OK\r\n\r\n";
	snprintf(url, sizeof url, "https://127.0.0.1:%d/", w.server->port);
	http_open_with(&w, (struct rdv_http_options){.url = url,
						     .timeout_ms = 500}); /* the server waits for a request's end */
	c = http_send(&w, kit_call(1, NULL));
	assert_true(c->answer.transport == RDV_TRANSPORT_TLS || c->answer.transport == RDV_TRANSPORT_TIMEOUT);
	kit_free(c);
	http_close(&w);
}

static int make_dir(void **state)
{
	char command[2048];

	if (!mkdtemp(dir))
		return -1;
	snprintf(command, sizeof command, make_certificates, dir);
	return system(command);
}

static int remove_dir(void **state)
{
	char command[64];

	snprintf(command, sizeof command, "rm -rf %s", dir);
	return system(command);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_trust_is_judged_rightly),
		cmocka_unit_test(a_client_without_the_wanted_certificate_gets_no_answer),
		cmocka_unit_test(plain_http_behind_an_https_url_is_a_tls_failure),
	};

	return cmocka_run_group_tests_name("handlers: http with TLS", tests, make_dir, remove_dir);
}
