import {
  ClientEvent,
  createClient,
  type MatrixClient,
  MemoryStore,
  type MatrixEvent,
  RoomEvent,
  SyncState,
} from 'matrix-js-sdk';
import { type Logger } from 'matrix-js-sdk/lib/logger.js';
import { validatedFetch } from './openapi.js';

const ignore = (): void => {};

/** The library tells of every request; a test shows what it must. */
const quiet: Logger = {
  trace: ignore,
  debug: ignore,
  info: ignore,
  warn: ignore,
  error: ignore,
  getChild: () => quiet,
};

export interface RegisteredClient {
  readonly client: MatrixClient;
  readonly userId: string;
  readonly accessToken: string;
  readonly deviceId: string;
}

/** Registers through interactive auth, as a client does, and returns a client that is logged in. */
export async function registerClient(
  baseUrl: string,
  username: string,
  password = `password of ${username}`,
): Promise<RegisteredClient> {
  const anonymous = createClient({ baseUrl, fetchFn: validatedFetch, logger: quiet });
  const request = { username, password, initial_device_display_name: `${username}'s device` };
  let session: string | undefined;
  try {
    await anonymous.registerRequest(request);
  } catch (error) {
    session = (error as { data?: { session?: string } }).data?.session;
  }
  const answer = await anonymous.registerRequest({
    ...request,
    auth: { type: 'm.login.dummy', ...(session === undefined ? {} : { session }) },
  });
  return loggedIn(baseUrl, answer.user_id, answer.access_token ?? '', answer.device_id ?? '');
}

/** Logs in with a password. */
export async function loginClient(
  baseUrl: string,
  username: string,
  password = `password of ${username}`,
): Promise<RegisteredClient> {
  const answer = await createClient({ baseUrl, fetchFn: validatedFetch, logger: quiet }).loginRequest({
    type: 'm.login.password',
    identifier: { type: 'm.id.user', user: username },
    password,
  });
  return loggedIn(baseUrl, answer.user_id, answer.access_token, answer.device_id);
}

/** A client with a token that is known. @param fetchFn what asks; answers of this server are held against the specification */
export function loggedIn(
  baseUrl: string,
  userId: string,
  accessToken: string,
  deviceId: string,
  fetchFn: typeof fetch = validatedFetch,
): RegisteredClient {
  const client = createClient({
    baseUrl,
    userId,
    accessToken,
    deviceId,
    store: new MemoryStore(),
    fetchFn,
    useAuthorizationHeader: true,
    logger: quiet,
  });
  return { client, userId, accessToken, deviceId };
}

/** Starts syncing and waits for the first sync. */
export async function startSyncing(
  client: MatrixClient,
  initialSyncLimit = 20,
  lazyLoadMembers = false,
): Promise<void> {
  const prepared = new Promise<void>((resolve, reject) => {
    client.on(ClientEvent.Sync, (state, _, data) => {
      if (state === SyncState.Prepared || state === SyncState.Syncing) resolve();
      if (state === SyncState.Error) reject(data?.error ?? new Error('sync failed'));
    });
  });
  await client.startClient({ initialSyncLimit, lazyLoadMembers, pollTimeout: 10_000, disablePresence: true });
  await prepared;
}

/** The next timeline event for which `wanted` holds. */
export function nextEvent(
  client: MatrixClient,
  wanted: (event: MatrixEvent) => boolean,
  limitMs = 90_000,
): Promise<MatrixEvent> {
  const happened = new Promise<MatrixEvent>((resolve, reject) => {
    const timer = setTimeout(() => reject(new Error(`no such event within ${limitMs} ms`)), limitMs);
    const listener = (event: MatrixEvent): void => {
      if (!wanted(event)) return;
      clearTimeout(timer);
      client.off(RoomEvent.Timeline, listener);
      resolve(event);
    };
    client.on(RoomEvent.Timeline, listener);
  });
  // A test that failed for another reason must not end the whole run.
  happened.catch(() => {});
  return happened;
}
