/* auth.c - the Host and Origin rule: even on loopback a web page must not reach the API.
 *
 * Host must be a loopback name or configured, whatever its port. An Origin must be one of those names, too; `null` is
 * foreign. A wrong one is refused before anything else is looked at (DNS rebinding, cross-site requests). Pure; any
 * thread. */
#include <strings.h>
#include "exchange.h"

/* The name part of "name:port", "[v6]:port", "name"; empty on nonsense. */
static struct rdv_slice host_name(const char *host)
{
	size_t size;
	if (host[0] == '[') {
		const char *end = strchr(host, ']');
		if (!end || (end[1] != '\0' && end[1] != ':'))
			return rdv_slice(NULL, 0);
		size = (size_t)(end - host) + 1;
	} else {
		size = strcspn(host, ":");
	}
	const char *port = host + size;
	if (*port == ':' && (port[1] == '\0' || strspn(port + 1, "0123456789") != strlen(port + 1)))
		return rdv_slice(NULL, 0);
	return rdv_slice(host, size);
}

bool rdv_host_allowed(const char *host, const char *const *hosts, size_t count)
{
	static const char *const loopback[] = {"localhost", "127.0.0.1", "[::1]"};
	if (!host)
		return false;
	struct rdv_slice name = host_name(host);
	if (name.size == 0)
		return false;
	for (size_t i = 0; i < sizeof loopback / sizeof loopback[0]; i++)
		if (rdv_slice_is_nocase(name, loopback[i]))
			return true;
	for (size_t i = 0; i < count; i++)
		if (rdv_slice_is_nocase(name, hosts[i]))
			return true;
	return false;
}

bool rdv_origin_allowed(const char *origin, const char *const *hosts, size_t count)
{
	const char *name = strstr(origin, "://");
	if (!name || (strncasecmp(origin, "http://", 7) != 0 && strncasecmp(origin, "https://", 8) != 0))
		return false;
	return strchr(name + 3, '/') == NULL && rdv_host_allowed(name + 3, hosts, count);
}
