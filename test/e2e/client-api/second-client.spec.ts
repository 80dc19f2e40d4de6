import { join } from 'node:path';
import { eventually } from '@rookery/testing';
import { DMs, type MatrixClient, MatrixClient as Client, SimpleFsStorageProvider } from 'matrix-bot-sdk';
import { contradictions, loginBot, nextOf, registerBot } from '../../support/bot-client.js';

import { databaseKinds, ServerProcess } from '../../support/server-process.js';

type Event = {
  readonly event_id: string;
  readonly sender: string;
  readonly type: string;
  readonly content: Record<string, unknown>;
  readonly unsigned?: Record<string, unknown>;
};

const saying = (body: string) => (_: string, event: Event) => event.content['body'] === body;

describe.each(databaseKinds)('a second client library lives on the server (%s)', (kind) => {
  let server: ServerProcess;
  let carol: MatrixClient;
  let dave: MatrixClient;
  let daveStorage: string;
  let roomId: string;
  let greeting: string;
  const clients: MatrixClient[] = [];

  const syncing = async (accessToken: string, storage: string, filter: object | null = null): Promise<MatrixClient> => {
    const client = new Client(server.baseUrl, accessToken, new SimpleFsStorageProvider(storage));
    client.syncingTimeout = 5_000;
    clients.push(client);
    await client.start(filter);
    return client;
  };

  beforeAll(async () => {
    server = await ServerProcess.prepare(kind, {
      default_room_version: '11',
      room_list_publication_rules: [{ action: 'allow' }],
    });
    await server.start();
    daveStorage = join(server.folder, 'dave.json');
  });

  afterAll(async () => {
    for (const client of clients) client.stop();
    await server?.remove();
  });

  afterEach(() => expect(contradictions.splice(0)).toEqual([]));

  it('registers, logs in again, and syncs', async () => {
    const registered = await registerBot(server.baseUrl, 'carol');
    expect(await registered.getUserId()).toBe('@carol:rookery.test');
    await registerBot(server.baseUrl, 'dave');
    carol = await syncing(registered.accessToken, join(server.folder, 'carol.json'));
    const again = await loginBot(server.baseUrl, 'dave');
    dave = await syncing(again.accessToken, daveStorage);
    expect(await dave.getWhoAmI()).toMatchObject({ user_id: '@dave:rookery.test' });
    expect(await carol.doesServerSupportVersion('v1.12')).toBe(true);
    expect(await carol.getJoinedRooms()).toEqual([]);
    await expect(new Client(server.baseUrl, 'no_such_token').getWhoAmI()).rejects.toMatchObject({
      errcode: 'M_UNKNOWN_TOKEN',
    });
  });

  it('makes a room, invites, joins', async () => {
    const invited = nextOf<Event>(dave, 'room.invite');
    roomId = await carol.createRoom({
      preset: 'private_chat',
      name: 'The rookery',
      topic: 'Nests',
      room_version: '11',
      room_alias_name: 'rookery',
      invite: ['@dave:rookery.test'],
    });
    expect((await invited).sender).toBe('@carol:rookery.test');
    const joined = nextOf<Event>(dave, 'room.join', (id) => id === roomId);
    const seen = nextOf<Event>(
      carol,
      'room.event',
      (_, { type, content, sender }) =>
        type === 'm.room.member' && sender.startsWith('@dave') && content['membership'] === 'join',
    );
    expect(await dave.joinRoom(roomId)).toBe(roomId);
    await Promise.all([joined, seen]);
    expect((await carol.getJoinedRoomMembers(roomId)).sort()).toEqual(['@carol:rookery.test', '@dave:rookery.test']);
    expect(await dave.getJoinedRooms()).toEqual([roomId]);
    const state = await dave.getRoomState(roomId);
    expect(state.find(({ type }: Event) => type === 'm.room.topic')?.content).toMatchObject({ topic: 'Nests' });
    const members = await carol.getRoomMembersByMembership(roomId, 'join');
    expect(members.map((member) => member.membershipFor).sort()).toEqual(['@carol:rookery.test', '@dave:rookery.test']);
  });

  it('talks: messages, notices, replies, reactions, edits, redactions', async () => {
    const heard = nextOf<Event>(dave, 'room.message', saying('caw'));
    greeting = await carol.sendText(roomId, 'caw');
    expect((await heard).event_id).toBe(greeting);

    const answered = nextOf<Event>(carol, 'room.message', (_, { content }) =>
      String(content['body']).endsWith('caw yourself'),
    );
    const reply = await dave.replyText(roomId, await heard, 'caw yourself');
    expect((await answered).content['m.relates_to']).toEqual({ 'm.in_reply_to': { event_id: greeting } });

    const reacted = nextOf<Event>(carol, 'room.event', (_, { type }) => type === 'm.reaction');
    await dave.unstableApis.addReactionToEvent(roomId, greeting, '🐦');
    expect((await reacted).content['m.relates_to']).toMatchObject({ key: '🐦', event_id: greeting });

    const edited = nextOf<Event>(dave, 'room.message', saying('* caw caw'));
    await carol.sendMessage(roomId, {
      msgtype: 'm.text',
      body: '* caw caw',
      'm.new_content': { msgtype: 'm.text', body: 'caw caw' },
      'm.relates_to': { rel_type: 'm.replace', event_id: greeting },
    });
    await edited;
    const whole = (await dave.getRawEvent(roomId, greeting)) as Event;
    const relations = whole.unsigned?.['m.relations'] as Record<string, { content?: Record<string, unknown> }>;
    expect(relations['m.replace']?.content?.['m.new_content']).toMatchObject({ body: 'caw caw' });
    const reactions = await dave.getRelationsForEvent(roomId, greeting, 'm.annotation');
    expect(reactions.chunk).toHaveLength(1);

    const noticed = nextOf<Event>(dave, 'room.message', (_, { content }) => content['msgtype'] === 'm.notice');
    await carol.sendHtmlNotice(roomId, '<b>feeding time</b>');
    expect((await noticed).content).toMatchObject({ body: 'feeding time', formatted_body: '<b>feeding time</b>' });

    const redacted = nextOf<Event & { redacts?: string }>(
      carol,
      'room.event',
      (_, { type }) => type === 'm.room.redaction',
    );
    await dave.redactEvent(roomId, reply, 'rude');
    expect((await redacted).content).toMatchObject({ redacts: reply, reason: 'rude' });
    expect(((await carol.getRawEvent(roomId, reply)) as Event).content).toEqual({});
    await expect(dave.redactEvent(roomId, greeting)).rejects.toMatchObject({ errcode: 'M_FORBIDDEN' });

    const context = await dave.getEventContext(roomId, greeting, 4);
    expect(context.event.eventId).toBe(greeting);
    expect(context.after.length + context.before.length).toBeGreaterThan(0);
  });

  it('keeps state and power levels', async () => {
    expect(await carol.userHasPowerLevelFor('@dave:rookery.test', roomId, 'm.room.topic', true)).toBe(false);
    await expect(dave.sendStateEvent(roomId, 'm.room.topic', '', { topic: 'Mine' })).rejects.toMatchObject({
      errcode: 'M_FORBIDDEN',
    });
    await carol.setUserPowerLevel('@dave:rookery.test', roomId, 50);
    expect(await carol.userHasPowerLevelFor('@dave:rookery.test', roomId, 'm.room.topic', true)).toBe(true);
    expect(await dave.userHasPowerLevelForAction('@dave:rookery.test', roomId, 'kick' as never)).toBe(true);
    expect(await dave.calculatePowerLevelChangeBoundsOn('@carol:rookery.test', roomId)).toMatchObject({
      canModify: false,
    });
    const changed = nextOf<Event>(carol, 'room.event', (_, { type }) => type === 'org.example.nest');
    await dave.sendStateEvent(roomId, 'org.example.nest', 'tree 4', { eggs: 3 });
    expect((await changed).content).toEqual({ eggs: 3 });
    expect(await carol.getRoomStateEvent(roomId, 'org.example.nest', 'tree 4')).toEqual({ eggs: 3 });
  });

  it('types, reads, and shows itself', async () => {
    const raw = (await dave.doRequest('GET', '/_matrix/client/v3/sync', { timeout: 0 })) as { next_batch: string };
    await carol.setTyping(roomId, true, 20_000);
    await carol.sendReadReceipt(roomId, greeting);
    const ephemeral = await eventually(async () => {
      const answer = (await dave.doRequest('GET', '/_matrix/client/v3/sync', {
        since: raw.next_batch,
        timeout: 1_000,
      })) as { rooms?: { join?: Record<string, { ephemeral: { events: Event[] } }> } };
      const events = answer.rooms?.join?.[roomId]?.ephemeral.events ?? [];
      return events.length >= 2 ? events : undefined;
    });
    expect(ephemeral.find(({ type }) => type === 'm.typing')?.content).toEqual({ user_ids: ['@carol:rookery.test'] });
    const receipts = ephemeral.find(({ type }) => type === 'm.receipt')?.content[greeting] as Record<string, object>;
    expect(Object.keys(receipts['m.read'] ?? {})).toEqual(['@carol:rookery.test']);

    await carol.setDisplayName('Carol Corvid');
    await carol.setAvatarUrl('mxc://rookery.test/crow');
    expect(await dave.getUserProfile('@carol:rookery.test')).toMatchObject({
      displayname: 'Carol Corvid',
      avatar_url: 'mxc://rookery.test/crow',
    });
    const shown = await eventually(async () => {
      const members = (await dave.getJoinedRoomMembersWithProfiles(roomId)) as Record<
        string,
        { display_name?: string }
      >;
      return members['@carol:rookery.test']?.display_name === 'Carol Corvid' ? members : undefined;
    });
    expect(Object.keys(shown)).toHaveLength(2);
    await carol.setPresenceStatus('online', 'on the wing');
    expect((await dave.getPresenceStatusFor('@carol:rookery.test')).statusMessage).toBe('on the wing');
  });

  it('keeps account data, direct chats and aliases', async () => {
    const told = nextOf<never>(carol, 'account_data', ((event: Event) => event.type === 'org.example.diet') as never);
    await carol.setAccountData('org.example.diet', { worms: true });
    await told;
    expect(await carol.getAccountData('org.example.diet')).toEqual({ worms: true });
    expect(await carol.getSafeAccountData('org.example.nothing', { none: 1 })).toEqual({ none: 1 });
    await carol.setRoomAccountData('org.example.perch', roomId, { branch: 'top' });
    expect(await carol.getRoomAccountData('org.example.perch', roomId)).toEqual({ branch: 'top' });

    const dms = new DMs(carol);
    await dms.update();
    const direct = await dms.getOrCreateDm('@dave:rookery.test');
    expect(dms.isDm(direct)).toBe(true);
    expect(await carol.getAccountData('m.direct')).toEqual({ '@dave:rookery.test': [direct] });
    await dave.joinRoom(direct);

    expect(await dave.resolveRoom('#rookery:rookery.test')).toBe(roomId);
    await carol.createRoomAlias('#nests:rookery.test', roomId);
    expect((await dave.lookupRoomAlias('#nests:rookery.test')).roomId).toBe(roomId);
    expect((await carol.unstableApis.getRoomAliases(roomId)).sort()).toEqual([
      '#nests:rookery.test',
      '#rookery:rookery.test',
    ]);
    await carol.deleteRoomAlias('#nests:rookery.test');
    await expect(dave.lookupRoomAlias('#nests:rookery.test')).rejects.toMatchObject({ errcode: 'M_NOT_FOUND' });
    expect(await carol.getPublishedAlias(roomId)).toBe('#rookery:rookery.test');
    await carol.setDirectoryVisibility(roomId, 'public');
    expect(await dave.getDirectoryVisibility(roomId)).toBe('public');
  });

  it('makes a space with children', async () => {
    const space = await carol.createSpace({ name: 'The wood', isPublic: false, invites: ['@dave:rookery.test'] });
    await space.addChildRoom(roomId, { suggested: true });
    const children = await space.getChildEntities();
    expect(Object.keys(children)).toEqual([roomId]);
    await dave.joinRoom(space.roomId);
    expect((await (await dave.getSpace(space.roomId)).getChildEntities())[roomId]?.content).toMatchObject({
      suggested: true,
    });
    await dave.leaveRoom(space.roomId);
  });

  it('filters what it hears', async () => {
    const filter = {
      presence: { not_types: ['*'] },
      account_data: { not_types: ['*'] },
      room: {
        rooms: [roomId],
        timeline: { types: ['m.room.message'], not_senders: ['@dave:rookery.test'], limit: 5 },
        state: { types: ['m.room.name'], lazy_load_members: true },
        ephemeral: { not_types: ['*'] },
        account_data: { not_types: ['*'] },
      },
    };
    const login = await loginBot(server.baseUrl, 'dave');
    const storage = join(server.folder, 'filtered.json');
    const heard: Event[] = [];
    const picky = new Client(server.baseUrl, login.accessToken, new SimpleFsStorageProvider(storage));
    picky.syncingTimeout = 2_000;
    picky.on('room.event', (_: string, event: Event) => void heard.push(event));
    clients.push(picky);
    await picky.start(filter);
    const last = nextOf<Event>(picky, 'room.message', saying('for the picky one'));
    await dave.sendText(roomId, 'not for the picky one');
    await dave.sendStateEvent(roomId, 'org.example.nest', 'tree 5', { eggs: 1 });
    await carol.sendText(roomId, 'for the picky one');
    await last;
    expect(new Set(heard.map(({ type }) => type))).toEqual(new Set(['m.room.message']));
    expect(new Set(heard.map(({ sender }) => sender))).toEqual(new Set(['@carol:rookery.test']));
    picky.stop();
  });

  it('goes on where it was after its own restart and the server’s, with the stored token', async () => {
    const token = dave.accessToken;
    // Stopped while it handles an answer, it asks for no other: where it stands is certain.
    const parting = nextOf<Event>(dave, 'room.message', (id, event) => {
      if (!saying('good night')(id, event)) return false;
      dave.stop();
      return true;
    });
    await carol.sendText(roomId, 'good night');
    await parting;
    await carol.sendText(roomId, 'while dave was away');
    expect(await server.stop()).toBe(0);
    await server.start();
    const heard: string[] = [];
    const revived = new Client(server.baseUrl, token, new SimpleFsStorageProvider(daveStorage));
    revived.syncingTimeout = 2_000;
    revived.on('room.message', (_: string, event: Event) => void heard.push(String(event.content['body'])));
    clients.push(revived);
    await revived.start(null);
    await carol.sendText(roomId, 'and now he is back');
    await eventually(() => heard.includes('and now he is back') || undefined);
    expect(heard).toEqual(['while dave was away', 'and now he is back']);
    dave = revived;
  });

  it('kicks, bans and forgets', async () => {
    const kicked = nextOf<Event>(dave, 'room.leave', (id) => id === roomId);
    await carol.kickUser('@dave:rookery.test', roomId, 'nap');
    expect((await kicked).content).toMatchObject({ membership: 'leave', reason: 'nap' });
    const invited = nextOf<Event>(dave, 'room.invite', (id) => id === roomId);
    await carol.inviteUser('@dave:rookery.test', roomId);
    await invited;
    await dave.joinRoom('#rookery:rookery.test');
    await carol.banUser('@dave:rookery.test', roomId, 'owl');
    await expect(dave.joinRoom(roomId)).rejects.toMatchObject({ errcode: 'M_FORBIDDEN' });
    await expect(dave.sendText(roomId, 'hoot')).rejects.toMatchObject({ errcode: 'M_FORBIDDEN' });
    await carol.unbanUser('@dave:rookery.test', roomId);
    await dave.forgetRoom(roomId);
    await expect(dave.getRoomState(roomId)).rejects.toMatchObject({ errcode: 'M_FORBIDDEN' });
  });
});
