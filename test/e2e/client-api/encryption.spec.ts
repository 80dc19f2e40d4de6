import 'fake-indexeddb/auto';
import { EventType, type MatrixClient, type MatrixEvent, MsgType, Preset } from 'matrix-js-sdk';
import {
  CryptoEvent,
  VerificationPhase,
  type VerificationRequest,
  VerifierEvent,
} from 'matrix-js-sdk/lib/crypto-api/index.js';
import { eventually, createTestHomeserver, type TestHomeserver } from '@rookery/testing';
import {
  loginClient,
  nextEvent,
  registerClient,
  type RegisteredClient,
  startSyncing,
} from '../../support/sdk-client.js';

const text = (body: string) => ({ msgtype: MsgType.Text, body }) as const;

async function startEncrypted(registered: RegisteredClient): Promise<MatrixClient> {
  await registered.client.initRustCrypto({ useIndexedDB: false });
  await startSyncing(registered.client, 100);
  return registered.client;
}

/** Waits until an event with this text arrived and was decrypted. */
function decrypted(client: MatrixClient, body: string, limitMs = 90_000): Promise<MatrixEvent> {
  return eventually(() => {
    for (const room of client.getRooms()) {
      for (const event of room.getLiveTimeline().getEvents()) {
        if (event.getType() === 'm.room.message' && event.isEncrypted() && event.getContent()['body'] === body)
          return event;
      }
    }
    return undefined;
  }, limitMs);
}

describe.each(['sqlite', 'postgres'] as const)('end-to-end encryption (%s)', (database) => {
  let homeserver: TestHomeserver;
  const clients: MatrixClient[] = [];
  let alice: RegisteredClient;
  let bob: RegisteredClient;
  let roomId: string;

  beforeAll(async () => {
    homeserver = await createTestHomeserver({ database });
    alice = await registerClient(homeserver.baseUrl, 'alice');
    bob = await registerClient(homeserver.baseUrl, 'bob');
    clients.push(await startEncrypted(alice), await startEncrypted(bob));
  });
  afterAll(async () => {
    for (const client of clients) client.stopClient();
    await homeserver?.stop();
  });

  it('two people talk encrypted', async () => {
    const room = await alice.client.createRoom({
      preset: Preset.PrivateChat,
      invite: [bob.userId],
      initial_state: [
        { type: EventType.RoomEncryption, state_key: '', content: { algorithm: 'm.megolm.v1.aes-sha2' } },
      ],
    });
    roomId = room.room_id;
    await eventually(() => bob.client.getRoom(roomId) ?? undefined);
    await bob.client.joinRoom(roomId);
    await eventually(() => alice.client.getRoom(roomId)?.getMember(bob.userId)?.membership === 'join' || undefined);
    await eventually(() => bob.client.getRoom(roomId)?.hasEncryptionStateEvent() || undefined);
    const arrived = nextEvent(bob.client, (event) => event.getSender() === alice.userId && event.isEncrypted());
    await alice.client.sendMessage(roomId, text('a secret for bob'));
    const wire = await arrived;
    expect(wire.getWireType()).toBe('m.room.encrypted');
    expect(JSON.stringify(wire.getWireContent())).not.toContain('secret');
    const read = await decrypted(bob.client, 'a secret for bob');
    expect(read.isDecryptionFailure()).toBe(false);
    await bob.client.sendMessage(roomId, text('a secret for alice'));
    await decrypted(alice.client, 'a secret for alice');
  });

  it('they verify each other by comparing emoji', async () => {
    const [hers, his] = [alice.client.getCrypto(), bob.client.getCrypto()];
    if (!hers || !his) throw new Error('no crypto');
    for (const [crypto, name] of [
      [hers, 'alice'],
      [his, 'bob'],
    ] as const) {
      await crypto.bootstrapCrossSigning({
        authUploadDeviceSigningKeys: async (makeRequest) => {
          await makeRequest({
            type: 'm.login.password',
            identifier: { type: 'm.id.user', user: name },
            password: `password of ${name}`,
          } as never);
        },
      });
    }
    await eventually(() => hers.userHasCrossSigningKeys(bob.userId));
    const asked = new Promise<VerificationRequest>((resolve) => {
      bob.client.on(CryptoEvent.VerificationRequestReceived, resolve);
    });
    const request = await hers.requestVerificationDM(bob.userId, roomId);
    const received = await asked;
    await received.accept();
    await eventually(() => request.phase === VerificationPhase.Ready || undefined);
    const verifier = await request.startVerification('m.sas.v1');
    await eventually(() => received.verifier ?? undefined);
    const confirmed = [verifier, received.verifier].map(
      (side) =>
        new Promise<string>((resolve) => {
          side?.on(VerifierEvent.ShowSas, (sas) => {
            void sas.confirm();
            resolve((sas.sas.emoji ?? []).map(([emoji]) => emoji).join(''));
          });
        }),
    );
    await Promise.all([verifier.verify(), received.verifier?.verify()]);
    const [left, right] = await Promise.all(confirmed);
    expect(left).toBe(right);
    expect(left).not.toBe('');
    await eventually(
      async () => (await hers.getUserVerificationStatus(bob.userId)).isCrossSigningVerified() || undefined,
    );
    await eventually(
      async () => (await his.getUserVerificationStatus(alice.userId)).isCrossSigningVerified() || undefined,
    );
  });

  it('cross-signing and a key backup bring old messages to a new device', async () => {
    const crypto = alice.client.getCrypto();
    if (!crypto) throw new Error('no crypto');
    expect(await crypto.isCrossSigningReady()).toBe(true);
    await crypto.resetKeyBackup();
    expect((await crypto.checkKeyBackupAndEnable())?.backupInfo.version).toBeDefined();
    const privateKey = await crypto.getSessionBackupPrivateKey();
    if (!privateKey) throw new Error('no backup key');
    // The client keeps the count it saw first; the server knows what has arrived.
    await eventually(async () => {
      const { body } = await homeserver.request<{ count: number }>(
        'GET',
        '/room_keys/version',
        undefined,
        alice.accessToken,
      );
      return body.count > 0 || undefined;
    });

    const second = await loginClient(homeserver.baseUrl, 'alice');
    clients.push(await startEncrypted(second));
    const newCrypto = second.client.getCrypto();
    if (!newCrypto) throw new Error('no crypto');
    const version = (await newCrypto.getKeyBackupInfo())?.version ?? '';
    await newCrypto.storeSessionBackupPrivateKey(privateKey, version);
    const restored = await newCrypto.restoreKeyBackup();
    expect(restored.imported).toBeGreaterThan(0);
    await eventually(() => second.client.getRoom(roomId) ?? undefined);
    for (const event of second.client.getRoom(roomId)?.getLiveTimeline().getEvents() ?? []) {
      if (event.isEncrypted()) await second.client.decryptEventIfNeeded(event, { isRetry: true } as never);
    }
    await decrypted(second.client, 'a secret for bob');
    // The new device takes part, and bob's client learns of it.
    await second.client.sendMessage(roomId, text('from my new device'));
    await decrypted(bob.client, 'from my new device');
  });

  it('goes on after a restart of the server and without a device that logged out', async () => {
    await homeserver.restart();
    await alice.client.sendMessage(roomId, text('after the restart'));
    // The client takes its time until it tries again.
    await decrypted(bob.client, 'after the restart');
    await clients[2]?.logout(true);
    await bob.client.sendMessage(roomId, text('to the device that is left'));
    await decrypted(alice.client, 'to the device that is left');
    const devices = await bob.client.getCrypto()?.getUserDeviceInfo([alice.userId], true);
    expect([...(devices?.get(alice.userId)?.keys() ?? [])]).toEqual([alice.deviceId]);
  });
});
