import type { TestHomeserver, TestUser } from '@rookery/testing';

/** Sends a request to one of a server's processes; the one that writes is the first. @param body a text as it is, all else as JSON */
export function requestProcess(
  homeserver: TestHomeserver,
  process: number,
  user: TestUser,
  method: string,
  path: string,
  body?: object | string,
): Promise<Response> {
  const [address] = homeserver.servers[process]!.addresses;
  return fetch(`http://127.0.0.1:${address!.port}${path}`, {
    method,
    headers: {
      authorization: `Bearer ${user.accessToken}`,
      ...(typeof body !== 'string' && { 'content-type': 'application/json' }),
    },
    ...(body !== undefined && { body: typeof body === 'string' ? body : JSON.stringify(body) }),
  });
}

/** Asks one of a server's processes by the API of clients. @returns the answer, which must be 200 */
export async function askProcess<T>(
  homeserver: TestHomeserver,
  process: number,
  user: TestUser,
  method: string,
  path: string,
  body?: object,
): Promise<T> {
  const response = await requestProcess(homeserver, process, user, method, `/_matrix/client/v3${path}`, body);
  expect({ path, status: response.status }).toEqual({ path, status: 200 });
  return (await response.json()) as T;
}
