// An mptcpd plugin that opens a second subflow from the address in the
// environment variable SECOND_PATH as soon as a connection is established:
// the minimum for the behaviour of the agent.

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdlib.h>

#include <mptcpd/path_manager.h>
#include <mptcpd/plugin.h>

static struct sockaddr_in second = {.sin_family = AF_INET};

static void established(mptcpd_token_t token, struct sockaddr const *local, struct sockaddr const *remote,
                        bool server_side, struct mptcpd_pm *pm) {
    (void)local;
    if (!server_side)
        mptcpd_pm_add_subflow(pm, token, 2, 0, (struct sockaddr const *)&second, remote, false);
}

static struct mptcpd_plugin_ops const operations = {.connection_established = established};

static int begin(struct mptcpd_pm *pm) {
    (void)pm;
    char const *address = getenv("SECOND_PATH");
    if (address == NULL || inet_pton(AF_INET, address, &second.sin_addr) != 1)
        return -1;
    return mptcpd_plugin_register_ops("second_path", &operations) ? 0 : -1;
}

static void end(struct mptcpd_pm *pm) {
    (void)pm;
}

MPTCPD_PLUGIN_DEFINE(second_path, "Opens a subflow over the second path", MPTCPD_PLUGIN_PRIORITY_DEFAULT, begin, end)
