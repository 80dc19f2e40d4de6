import { isIP } from 'node:net';
import { type JsonObject, matchesGlob } from '@rookery/matrix-types';

/** Which servers may take part in a room. */
export interface ServerAcl {
  allows(serverName: string): boolean;
}

/**
 * Reads an `m.room.server_acl`. Lists that are none count as empty, so that nobody is allowed; entries that are no text are
 * passed over.
 * @spec client-server-api#mroomserver_acl
 */
export function serverAclOf(content: Readonly<JsonObject>): ServerAcl {
  const allowed = globsIn(content['allow']);
  const denied = globsIn(content['deny']);
  const takesAddresses = content['allow_ip_literals'] !== false;
  return {
    allows(serverName) {
      const host = hostOf(serverName);
      if (!takesAddresses && isAddress(host)) return false;
      const matches = (glob: string): boolean => matchesGlob(glob, host);
      return !denied.some(matches) && allowed.some(matches);
    },
  };
}

const globsIn = (list: unknown): string[] =>
  Array.isArray(list) ? list.filter((entry): entry is string => typeof entry === 'string') : [];

/** The name without its port, in lower case: what the list's entries are written for. */
const hostOf = (serverName: string): string => serverName.toLowerCase().replace(/:\d+$/, '');

const isAddress = (host: string): boolean => isIP(host) === 4 || (host.startsWith('[') && host.endsWith(']'));
