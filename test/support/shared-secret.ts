import type { TestHomeserver, TestUser } from '@rookery/testing';
import { createHmac } from 'node:crypto';

/**
 * Makes an account with the secret that the tests' servers share: an administrator, or many users, as interactive
 * authentication has a limit by address.
 * @throws Error when the server makes none
 */
export async function registerWithSecret(
  homeserver: TestHomeserver,
  username: string,
  isAdmin = false,
): Promise<TestUser> {
  const path = '/_synapse/admin/v1/register';
  const { nonce } = (await homeserver.request<{ nonce: string }>('GET', path)).body;
  const password = `password of ${username}`;
  const signed = [nonce, username, password, isAdmin ? 'admin' : 'notadmin'].join('\0');
  const mac = createHmac('sha1', 'shared').update(signed).digest('hex');
  const account = { nonce, mac, username, password, admin: isAdmin };
  const { status, body } = await homeserver.request<Record<string, string>>('POST', path, account);
  const accessToken = body['access_token'];
  if (accessToken === undefined) throw new Error(`${username}: ${status} ${JSON.stringify(body)}`);
  return {
    userId: body['user_id']!,
    deviceId: body['device_id']!,
    accessToken,
    request: (method, target, content) => homeserver.request(method, target, content, accessToken),
  };
}
