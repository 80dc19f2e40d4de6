import 'fake-indexeddb/auto';
import { EventType, type MatrixClient, MsgType, Preset } from 'matrix-js-sdk';
import { eventually } from '@rookery/testing';
import { registerClient, type RegisteredClient, startSyncing } from '../../support/sdk-client.js';
import { databases } from '../rooms/rooms-client.js';
import { FederationWorld } from './federation-world.js';

const text = (body: string) => ({ msgtype: MsgType.Text, body }) as const;

describe.each(databases)('encryption between servers (%s)', (database) => {
  let world: FederationWorld;
  const clients: MatrixClient[] = [];
  let alice: RegisteredClient;
  let bob: RegisteredClient;

  const start = async (baseUrl: string, name: string): Promise<RegisteredClient> => {
    const registered = await registerClient(baseUrl, name);
    await registered.client.initRustCrypto({ useIndexedDB: false });
    await startSyncing(registered.client, 100);
    clients.push(registered.client);
    return registered;
  };
  beforeAll(async () => {
    world = await FederationWorld.create();
    const one = await world.homeserver('one.test', { database });
    const two = await world.homeserver('two.test', { database });
    alice = await start(one.baseUrl, 'alice');
    bob = await start(two.baseUrl, 'bob');
  });
  afterAll(async () => {
    for (const client of clients) client.stopClient();
    await world?.stop();
  });

  /** Waits until somebody has read a text that came encrypted. */
  const reads = ({ client }: RegisteredClient, roomId: string, body: string): Promise<boolean> =>
    eventually(() =>
      client
        .getRoom(roomId)
        ?.getLiveTimeline()
        .getEvents()
        .some((event) => event.isEncrypted() && event.getContent()['body'] === body),
    );

  it('lets people talk encrypted, also from a device that came later', async () => {
    const { room_id: roomId } = await alice.client.createRoom({
      preset: Preset.PrivateChat,
      invite: [bob.userId],
      initial_state: [
        { type: EventType.RoomEncryption, state_key: '', content: { algorithm: 'm.megolm.v1.aes-sha2' } },
      ],
    });
    await eventually(() => bob.client.getRoom(roomId) ?? undefined);
    await bob.client.joinRoom(roomId);
    await eventually(() => alice.client.getRoom(roomId)?.getMember(bob.userId)?.membership === 'join');
    await eventually(() => bob.client.getRoom(roomId)?.hasEncryptionStateEvent());
    await alice.client.sendMessage(roomId, text('a secret for bob'));
    await reads(bob, roomId, 'a secret for bob');
    await bob.client.sendMessage(roomId, text('a secret for alice'));
    await reads(alice, roomId, 'a secret for alice');
  });

  it('tells across servers who a user says to be', async () => {
    const crypto = bob.client.getCrypto();
    await crypto?.bootstrapCrossSigning({
      authUploadDeviceSigningKeys: async (makeRequest) => {
        await makeRequest({
          type: 'm.login.password',
          identifier: { type: 'm.id.user', user: 'bob' },
          password: 'password of bob',
        } as never);
      },
    });
    const own = await crypto?.getCrossSigningKeyId();
    expect(own).toBeTruthy();
    const seen = async (): Promise<boolean> =>
      JSON.stringify(await alice.client.downloadKeysForUsers([bob.userId])).includes(own ?? 'nothing');
    await eventually(seen);
    await eventually(async () => (await alice.client.getCrypto()?.userHasCrossSigningKeys(bob.userId)) || undefined);
  });
});
