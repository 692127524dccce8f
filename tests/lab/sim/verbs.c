/* libibverbs over /sys/class/infiniband alone, so that the real ibv_devinfo needs no RDMA hardware.
 * Preloaded; answers what ibv_devinfo of rdma-core 44 asks. Limits of a device are 0; XDR shows as NDR,
 * since the eight bits of active_speed end there. */
#define ibv_query_port declared_ibv_query_port /* the header has a macro and an old form of it */
#include <infiniband/verbs.h>
#undef ibv_query_port
#undef ibv_get_device_list
#include <arpa/inet.h>
#include <dirent.h>
#include <endian.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char class[] = "/sys/class/infiniband";

/* The first line of a file below the class; empty where there is none. */
static const char *sysfs(const char *form, ...)
{
	static char line[128];
	char below[256], path[320];
	va_list words;
	FILE *file;

	va_start(words, form);
	vsnprintf(below, sizeof below, form, words);
	va_end(words);
	snprintf(path, sizeof path, "%s/%s", class, below);
	line[0] = 0;
	if ((file = fopen(path, "r"))) {
		if (fgets(line, sizeof line, file))
			line[strcspn(line, "\n")] = 0;
		fclose(file);
	}
	return line;
}

/* "a:b:c:d" in groups of four hex digits, as the bytes that go over the wire. */
static void groups(const char *text, int count, uint8_t *out)
{
	for (int i = 0; i < count; i++) {
		char *end;
		uint16_t group = htons((uint16_t)strtoul(text, &end, 16));

		memcpy(out + 2 * i, &group, 2);
		text = *end == ':' ? end + 1 : end;
	}
}

static __be64 guid(const char *device, const char *file)
{
	__be64 out = 0;

	groups(sysfs("%s/%s", device, file), 4, (uint8_t *)&out);
	return out;
}

static long number(const char *device, int port, const char *file)
{
	return strtol(sysfs("%s/ports/%d/%s", device, port, file), NULL, 0);
}

struct ibv_device **ibv_get_device_list(int *found)
{
	struct dirent **entries;
	struct ibv_device **list;
	int count = scandir(class, &entries, NULL, alphasort), used = 0;

	if (count < 0) {
		errno = ENOSYS;
		return NULL;
	}
	list = calloc((size_t)count + 1, sizeof *list);
	for (int i = 0; i < count; i++) {
		const char *name = entries[i]->d_name;

		if (name[0] == '.')
			continue;
		list[used] = calloc(1, sizeof **list);
		list[used]->node_type = IBV_NODE_CA;
		list[used]->transport_type = IBV_TRANSPORT_IB;
		strncpy(list[used]->name, name, sizeof list[used]->name - 1);
		used++;
	}
	if (found)
		*found = used;
	return list;
}

void ibv_free_device_list(struct ibv_device **list) { free(list); }
const char *ibv_get_device_name(struct ibv_device *device) { return device->name; }
__be64 ibv_get_device_guid(struct ibv_device *device) { return guid(device->name, "node_guid"); }

struct ibv_context *ibv_open_device(struct ibv_device *device)
{
	struct ibv_context *context = calloc(1, sizeof *context);

	context->device = device;
	context->num_comp_vectors = 63;
	return context;
}

int ibv_close_device(struct ibv_context *context)
{
	free(context);
	return 0;
}

int ibv_query_device(struct ibv_context *context, struct ibv_device_attr *out)
{
	const char *device = context->device->name, *type;

	memset(out, 0, sizeof *out);
	strncpy(out->fw_ver, sysfs("%s/fw_ver", device), sizeof out->fw_ver - 1);
	out->node_guid = guid(device, "node_guid");
	out->sys_image_guid = guid(device, "sys_image_guid");
	out->vendor_id = 0x02c9;
	type = sysfs("%s/hca_type", device);
	out->vendor_part_id = (uint32_t)atoi(type + strspn(type, "MT"));
	out->phys_port_cnt = 1;
	return 0;
}

int ibv_query_port(struct ibv_context *context, uint8_t port, struct _compat_ibv_port_attr *compat)
{
	static const char *const speeds[] = {"SDR", "DDR", "QDR", "FDR10", "FDR", "EDR", "HDR", "NDR"};
	static const struct { int lanes; uint8_t code; } widths[] = {{1, 1}, {2, 16}, {4, 2}, {8, 4}, {12, 8}};
	struct ibv_port_attr *out = (struct ibv_port_attr *)compat;
	const char *device = context->device->name, *rate;
	char speed[16] = "";
	int lanes = 0;

	memset(out, 0, 48); /* as much as the oldest caller has room for */
	out->state = (enum ibv_port_state)number(device, port, "state");
	out->phys_state = (uint8_t)number(device, port, "phys_state");
	out->lid = (uint16_t)number(device, port, "lid");
	out->sm_lid = (uint16_t)number(device, port, "sm_lid");
	out->port_cap_flags = (uint32_t)strtoul(sysfs("%s/ports/%d/cap_mask", device, port), NULL, 0);
	out->max_mtu = out->active_mtu = IBV_MTU_4096;
	out->gid_tbl_len = out->pkey_tbl_len = 1;
	out->max_msg_sz = 1u << 30;
	out->max_vl_num = 4;
	out->link_layer = strcmp(sysfs("%s/ports/%d/link_layer", device, port), "Ethernet")
				  ? IBV_LINK_LAYER_INFINIBAND : IBV_LINK_LAYER_ETHERNET;
	rate = strchr(sysfs("%s/ports/%d/rate", device, port), '('); /* 400 Gb/sec (4X NDR) */
	if (rate)
		sscanf(rate, "(%dX %15[A-Z0-9]", &lanes, speed);
	for (size_t i = 0; i < sizeof widths / sizeof *widths; i++)
		if (widths[i].lanes == lanes)
			out->active_width = widths[i].code;
	for (size_t i = 0; i < sizeof speeds / sizeof *speeds; i++)
		if (!strcmp(speed, speeds[i]))
			out->active_speed = (uint8_t)(1u << i);
	if (!strcmp(speed, "XDR"))
		out->active_speed = 128;
	return 0;
}

int ibv_query_gid(struct ibv_context *context, uint8_t port, int index, union ibv_gid *out)
{
	const char *text = sysfs("%s/ports/%d/gids/%d", context->device->name, port, index);

	memset(out, 0, sizeof *out);
	if (!*text)
		return -1;
	groups(text, 8, out->raw);
	return 0;
}

int ibv_query_gid_type(struct ibv_context *context, uint8_t port, unsigned index, int *out)
{
	const char *text = sysfs("%s/ports/%d/gid_attrs/types/%u", context->device->name, port, index);

	*out = !strcmp(text, "RoCE v2"); /* 0: InfiniBand or RoCE v1 */
	return 0;
}
