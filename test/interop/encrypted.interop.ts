import 'fake-indexeddb/auto';
import { eventually } from '@rookery/testing';
import { EventType, type MatrixClient, MsgType, Preset } from 'matrix-js-sdk';
import { loggedIn, type RegisteredClient, startSyncing } from '../support/sdk-client.js';
import { Federation, type Peer } from './peers.js';
import { patienceMs, Person } from './person.js';

const text = (body: string) => ({ msgtype: MsgType.Text, body }) as const;

describe('encrypted rooms shared with a live Synapse', () => {
  let federation: Federation;
  const clients: MatrixClient[] = [];
  beforeAll(async () => {
    federation = await Federation.start('postgres');
  }, 400_000);
  afterAll(async () => {
    for (const client of clients) client.stopClient();
    await federation?.remove();
  });

  async function start(home: Peer, name: string): Promise<RegisteredClient> {
    const { userId, token, deviceId } = await Person.at(home, name);
    const registered = loggedIn(home.baseUrl, userId, token, deviceId, fetch);
    await registered.client.initRustCrypto({ useIndexedDB: false });
    await startSyncing(registered.client, 100);
    clients.push(registered.client);
    return registered;
  }

  const reads = ({ client }: RegisteredClient, roomId: string, body: string): Promise<boolean> =>
    eventually(
      () =>
        client
          .getRoom(roomId)
          ?.getLiveTimeline()
          .getEvents()
          .some((event) => event.isEncrypted() && event.getContent()['body'] === body),
      patienceMs,
    );

  it.each(['rookery', 'synapse'] as const)(
    'people of both sides talk in a room made on the side of %s, and devices that come and go are noticed',
    async (side) => {
      const [home, away] =
        side === 'rookery' ? [federation.rookery, federation.synapse] : [federation.synapse, federation.rookery];
      const ann = await start(home, 'ann');
      const bob = await start(away, 'bob');
      const { room_id: roomId } = await ann.client.createRoom({
        preset: Preset.PrivateChat,
        invite: [bob.userId],
        initial_state: [
          { type: EventType.RoomEncryption, state_key: '', content: { algorithm: 'm.megolm.v1.aes-sha2' } },
        ],
      });
      await eventually(() => bob.client.getRoom(roomId) ?? undefined, patienceMs);
      await bob.client.joinRoom(roomId);
      await eventually(() => ann.client.getRoom(roomId)?.getMember(bob.userId)?.membership === 'join', patienceMs);
      await eventually(() => bob.client.getRoom(roomId)?.hasEncryptionStateEvent(), patienceMs);
      await ann.client.sendMessage(roomId, text('a secret for bob'));
      await reads(bob, roomId, 'a secret for bob');
      await bob.client.sendMessage(roomId, text('a secret for ann'));
      await reads(ann, roomId, 'a secret for ann');

      // A device that is new is told to the other side before anybody writes to it.
      const login = await bob.client.loginRequest({
        type: 'm.login.password',
        identifier: { type: 'm.id.user', user: bob.userId },
        password: 'correct horse',
      });
      const second = loggedIn(away.baseUrl, login.user_id, login.access_token, login.device_id, fetch);
      await second.client.initRustCrypto({ useIndexedDB: false });
      await startSyncing(second.client, 100);
      clients.push(second.client);
      const devicesOfBob = async (): Promise<string[]> => {
        const info = await ann.client.getCrypto()?.getUserDeviceInfo([bob.userId], false);
        return [...(info?.get(bob.userId)?.keys() ?? [])];
      };
      await eventually(async () => (await devicesOfBob()).includes(login.device_id), patienceMs);
      await ann.client.sendMessage(roomId, text('for both of your devices'));
      await reads(bob, roomId, 'for both of your devices');
      await reads(second, roomId, 'for both of your devices');
      second.client.stopClient();
      await second.client.logout();
      await eventually(async () => !(await devicesOfBob()).includes(login.device_id), patienceMs);
    },
    600_000,
  );
});
