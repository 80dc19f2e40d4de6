import { createTestHomeserver, type TestHomeserver, type TestHomeserverOptions, type TestUser } from '@rookery/testing';
import { validatedFetch } from '../../support/openapi.js';
import { registerWithSecret } from '../../support/shared-secret.js';

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

/** Registers an administrator. */
export const registerAdmin = (homeserver: TestHomeserver, username = 'root'): Promise<TestUser> =>
  registerWithSecret(homeserver, username, true);

/** Starts a server and makes the administrator `@root:rookery.test`. */
export async function startAdminWorld(options: TestHomeserverOptions): Promise<AdminWorld> {
  const homeserver = await createTestHomeserver({ fetch: validatedFetch, ...options });
  const root = await registerAdmin(homeserver);
  return { homeserver, root, admin: asUser(root) };
}
