import { EventPersister, EventStore, PurgeService } from '@rookery/rooms';
import { eachDatabase, eventually, FakeClock, type TestDatabase } from '@rookery/testing';
import { UserHooks } from '@rookery/users';
import type { JsonObject } from '@rookery/matrix-types';
import { OwnReads } from '../actions/own-reads.js';
import { raiseMark } from '../actions/push-actions.query.js';
import { buildPush, fixtureMigrations, type PushFixture } from '../push.fixture.js';
import { DuePushers } from '../pushers/due-pushers.js';
import { PushersService } from '../pushers/pushers.service.js';
import { EmailDigests } from './email-digests.js';
import { UnsubscribeLinks } from './unsubscribe-links.js';

const alice = '@alice:example.org';
const bob = '@bob:example.org';
const address = 'bob@example.com';
const minuteMs = 60_000;

eachDatabase('mails about missed messages', (open) => {
  let clock: FakeClock;
  let test: TestDatabase;
  let push: PushFixture;
  let roomId: string;
  let lastPosition = 0;

  beforeEach(async () => {
    clock = new FakeClock();
    test = await open(clock);
    await test.migrate(fixtureMigrations);
    push = await buildPush({
      database: test.database,
      clock,
      settings: {
        public_baseurl: 'https://matrix.example.org/',
        macaroon_secret_key: 'secret',
        email: { enable_notifs: true, notif_for_new_users: true, notif_from: 'Server <x@example.org>' },
      },
    });
    await push.get(DuePushers).start();
    const event = { userId: bob, medium: 'email', address, atRegistration: true };
    await test.database.write((tx) => push.get(UserHooks).threepidAdded.inTransaction(tx, event));
    roomId = await room('Rook');
  });
  afterEach(async () => {
    await push.get(DuePushers).stop();
    await push.close();
    await test.close();
  });

  const persister = (): EventPersister => push.get(EventPersister);
  const room = async (name?: string): Promise<string> => {
    const state = (type: string, stateKey: string, content: JsonObject, sender = alice) => ({
      type,
      stateKey,
      sender,
      content,
    });
    const created = await persister().createRoom({
      roomVersion: '12',
      creator: alice,
      isPublic: true,
      drafts: [
        state('m.room.create', '', { room_version: '12' }),
        state('m.room.member', alice, { membership: 'join', displayname: 'Alice' }),
        state('m.room.join_rules', '', { join_rule: 'public' }),
        ...(name === undefined ? [] : [state('m.room.name', '', { name })]),
        state('m.room.member', bob, { membership: 'join' }, bob),
      ],
    });
    return created.roomId;
  };
  const say = async (body: string, where = roomId, more: JsonObject = {}): Promise<string> => {
    const content = { msgtype: 'm.text', body, ...more };
    const sent = await persister().send({ roomId: where, type: 'm.room.message', sender: alice, content });
    lastPosition = sent.streamOrdering;
    await eventually(async () => {
      const row = await test.database.get<{ due_up_to: number | null }>('SELECT due_up_to FROM pushers');
      return row === undefined || (row.due_up_to ?? 0) >= lastPosition;
    });
    return sent.eventId;
  };
  const look = async (): Promise<string[]> => {
    push.mails.splice(0);
    await push.get(EmailDigests).look();
    return push.mails.map((mail) => mail.subject);
  };

  it('go out once, after a while, to whom they should', async () => {
    await say('hello <there>');
    expect(await look()).toEqual([]);
    await clock.advance(11 * minuteMs);
    expect(await look()).toEqual(['message_from_person_in_room {"person":"Alice","room":"Rook"}']);
    expect(push.mails[0]).toMatchObject({
      to: address,
      kind: 'notif',
      values: {
        user_display_name: 'bob',
        rooms: [
          {
            title: 'Rook',
            invite: false,
            link: `https://matrix.to/#/${encodeURIComponent(roomId)}`,
            notifs: [
              {
                messages: [
                  { sender_name: 'Alice', body_text_plain: 'hello <there>', body_text_html: 'hello &lt;there&gt;' },
                ],
              },
            ],
          },
        ],
        reason: { room_name: 'Rook', last_sent_ts: null },
      },
      headers: { 'List-Unsubscribe-Post': 'List-Unsubscribe=One-Click' },
    });
    await clock.advance(60 * minuteMs);
    expect(await look()).toEqual([]);
  });

  it('are not worked out anew while none can be due', async () => {
    const settle = jest.spyOn(push.get(OwnReads), 'settle');
    await say('wait');
    expect(await look()).toEqual([]);
    expect(settle).toHaveBeenCalledTimes(1);
    await clock.advance(4 * minuteMs);
    const other = await room('Other');
    await say('more', other);
    expect(await look()).toEqual([]);
    await clock.advance(5 * minuteMs);
    expect(await look()).toEqual([]);
    expect(settle).toHaveBeenCalledTimes(1);
    await clock.advance(minuteMs);
    expect(await look()).toHaveLength(1);
    // The rooms of that mail may cause none for ten minutes; another one may, after the delay.
    settle.mockClear();
    await say('third', await room('Third'));
    expect(await look()).toEqual([]);
    await clock.advance(9 * minuteMs);
    expect(await look()).toEqual([]);
    expect(settle).toHaveBeenCalledTimes(1);
    await clock.advance(minuteMs);
    expect(await look()).toHaveLength(1);
  });

  it('show what was said just before and just after, and formatted messages as they may stand in a mail', async () => {
    await say('one');
    await test.database.write((tx) => raiseMark(tx, bob, roomId, undefined, lastPosition));
    await say('zero', roomId, { format: 'org.matrix.custom.html', formatted_body: '<b>z</b><script>x</script>' });
    await persister().send({
      roomId,
      type: 'm.room.message',
      sender: bob,
      content: { msgtype: 'm.text', body: 'mine' },
    });
    await say('two');
    await clock.advance(11 * minuteMs);
    expect(await look()).toHaveLength(1);
    const [shown] = push.mails[0]?.values['rooms'] as { notifs: { messages: Record<string, unknown>[] }[] }[];
    const told = shown?.notifs.map(({ messages }) =>
      messages.map(({ body_text_plain, body_text_html, is_historical }) => [
        body_text_plain,
        body_text_html,
        is_historical,
      ]),
    );
    expect(told).toEqual([
      [
        ['one', 'one', true],
        ['zero', '<b>z</b>', false],
        ['mine', 'mine', true],
        ['two', 'two', false],
      ],
    ]);
  });

  it('say nothing of what was read meanwhile', async () => {
    await say('hello');
    await clock.advance(9 * minuteMs);
    await test.database.write((tx) => raiseMark(tx, bob, roomId, undefined, lastPosition));
    await clock.advance(9 * minuteMs);
    expect(await look()).toEqual([]);
    const row = await test.database.get<{ due_up_to: number | null }>('SELECT due_up_to FROM pushers');
    expect(row?.due_up_to).toBeNull();
  });

  it('say nothing of what is purged just then', async () => {
    const gone = await say('hello');
    const last = await say('there');
    await clock.advance(11 * minuteMs);
    const events = push.get(EventStore);
    const { inOrder } = events;
    jest.spyOn(events, 'inOrder').mockImplementationOnce(async (eventIds) => {
      await push.get(PurgeService).purgeHistory(roomId, { eventId: last }, false);
      await eventually(async () => (await events.one(gone))?.outlier === true);
      return inOrder.call(events, eventIds);
    });
    expect(await look()).toEqual(['message_from_person_in_room {"person":"Alice","room":"Rook"}']);
    expect(JSON.stringify(push.mails)).toContain('there');
    expect(JSON.stringify(push.mails)).not.toContain('hello');
  });

  it('go to the others, whoever cannot be written to', async () => {
    await say('hello');
    // First in the list: one from before addresses had this bound, and one whose mail fails for a reason of its own.
    const rest = `user_name, app_id, profile_tag, kind, app_display_name, device_display_name, ts, lang, data, last_stream_ordering, due_after, due_up_to`;
    const others = [`${'x'.repeat(65)}@example.com`, 'broken@example.com'];
    await test.database.write(async (tx) => {
      await tx.run('UPDATE pushers SET id = id + 10');
      for (const [index, other] of others.entries())
        await tx.run(
          `INSERT INTO pushers (id, pushkey, ${rest}) SELECT ${index + 1}, '${other}', ${rest} FROM pushers WHERE id > 10`,
        );
    });
    const { push: add } = push.mails;
    push.mails.push = (mail) => {
      if (mail.to.startsWith('broken')) throw new Error('a template is wrong');
      return add.call(push.mails, mail);
    };
    await clock.advance(11 * minuteMs);
    expect(await look()).toHaveLength(1);
    expect(push.mails[0]?.to).toBe(address);
    const due = await test.database.query<{ id: number }>('SELECT id FROM pushers WHERE due_up_to IS NOT NULL');
    expect(due).toEqual([{ id: 2 }]);
    push.mails.push = add;
    await clock.advance(11 * minuteMs);
    expect(await look()).toHaveLength(1);
    expect(push.mails[0]?.to).toBe('broken@example.com');
  });

  it('get rarer while a room goes on, and begin anew after a quiet time', async () => {
    await say('one');
    await clock.advance(11 * minuteMs);
    expect(await look()).toHaveLength(1);
    await say('two');
    await clock.advance(11 * minuteMs);
    expect(await look()).toHaveLength(1);
    await say('three');
    await clock.advance(60 * minuteMs);
    expect(await look()).toEqual([]);
    await clock.advance(61 * minuteMs);
    expect(await look()).toHaveLength(1);
    await clock.advance(48 * 60 * minuteMs);
    await say('four');
    await clock.advance(11 * minuteMs);
    expect(await look()).toHaveLength(1);
  });

  it('gather what was missed, named after the room, or after the sender where it has no name', async () => {
    const other = await room();
    await say('one', other);
    await say('two', other);
    await clock.advance(11 * minuteMs);
    expect(await look()).toEqual(['messages_from_person {"person":"Alice"}']);
    await say('three');
    await say('four', other);
    await clock.advance(11 * minuteMs);
    expect(await look()).toEqual(['messages_in_room_and_others {"room":"Rook"}']);
    expect(push.mails[0]?.values['rooms']).toMatchObject([{ title: 'Rook' }, { title: 'Alice' }]);
  });

  it('end with the address, and by a link that nobody can forge', async () => {
    const links = push.get(UnsubscribeLinks);
    const link = new URL(links.link(bob, address) ?? '');
    const token = link.searchParams.get('access_token') ?? '';
    expect(link.pathname).toBe('/_synapse/client/unsubscribe');
    expect(links.check(token, address)).toBe(bob);
    expect(links.check(token, 'other@example.com')).toBeUndefined();
    expect(links.check(`${Buffer.from(alice).toString('base64url')}.${token.split('.')[1]}`, address)).toBeUndefined();
    expect(links.check('', '')).toBeUndefined();
    const event = { userId: bob, medium: 'email', address, atRegistration: false };
    expect(await push.get(PushersService).list(bob)).toHaveLength(1);
    await test.database.write((tx) => push.get(UserHooks).threepidRemoved.inTransaction(tx, event));
    expect(await push.get(PushersService).list(bob)).toEqual([]);
  });
});
