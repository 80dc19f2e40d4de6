import { createHmac } from 'node:crypto';
import { createTestHomeserver, type TestHomeserver, type TestHomeserverOptions, type TestUser } from '@rookery/testing';
import { validatedFetch } from '../../support/openapi.js';

/** A body of JSON. */
export type Json = Record<string, unknown>;

/** A request of an administrator; paths of the admin API may leave out its prefix: `v2/users`. */
export type AdminRequest = <T = Json>(
  method: string,
  path: string,
  body?: unknown,
) => Promise<{ readonly status: number; readonly body: T }>;

/** A server with an administrator. */
export interface AdminWorld {
  readonly homeserver: TestHomeserver;
  readonly admin: AdminRequest;
  readonly root: TestUser;
}

/** The prefix of the admin API before a short path. */
export const adminPath = (path: string): string => (path.startsWith('/') ? path : `/_synapse/admin/${path}`);

/** A request as a user of the test. */
export const asUser =
  (user: TestUser): AdminRequest =>
  (method, path, body) =>
    user.request(method, adminPath(path), body);

/** Registers an administrator with the shared secret. */
export async function registerAdmin(homeserver: TestHomeserver, username: string): Promise<TestUser> {
  const path = '/_synapse/admin/v1/register';
  const { body } = await homeserver.request<{ nonce: string }>('GET', path);
  const mac = createHmac('sha1', 'shared').update([body.nonce, username, 'password', 'admin'].join('\0')).digest('hex');
  const request = { nonce: body.nonce, username, password: 'password', admin: true, mac };
  const made = await homeserver.request<Record<string, string>>('POST', path, request);
  const accessToken = made.body['access_token'] ?? '';
  return {
    userId: made.body['user_id'] ?? '',
    accessToken,
    deviceId: made.body['device_id'] ?? '',
    request: (method, path, content) => homeserver.request(method, path, content, accessToken),
  };
}

/** Starts a server and makes the administrator `@root:rookery.test`. */
export async function startAdminWorld(options: TestHomeserverOptions): Promise<AdminWorld> {
  const homeserver = await createTestHomeserver({ fetch: validatedFetch, ...options });
  const root = await registerAdmin(homeserver, 'root');
  return { homeserver, root, admin: asUser(root) };
}
