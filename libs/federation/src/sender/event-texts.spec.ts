import { addSignatures, buildEvent, eventFromRow, pduText, roomVersionRules } from '@rookery/events';
import { Config } from '@rookery/platform';
import type { EventStore, StoredEvent } from '@rookery/rooms';
import { EventTexts } from './event-texts.js';

const rules = roomVersionRules('11')!;

describe('the text of an event in a transaction', () => {
  it('lacks what the event shows to its target alone, which could make it too large for others', async () => {
    const invite = addSignatures(
      buildEvent(
        {
          ...{ roomId: '!r:home.test', type: 'm.room.member', stateKey: '@bob:far.test', sender: '@alice:home.test' },
          ...{ content: { membership: 'invite' }, originServerTs: 1, depth: 5 },
          ...{ prevEventIds: ['$before'], authEventIds: ['$create'] },
        },
        rules,
      ),
      { 'home.test': { 'ed25519:1': 'c2ln' } },
    );
    const topic = { type: 'm.room.topic', state_key: '', sender: '@alice:home.test', content: { topic: 't' } };
    const kept = pduText({ ...invite, pdu: { ...invite.pdu, unsigned: { invite_room_state: [topic] } } });
    const stored = {
      ...{ event: eventFromRow(kept, invite.eventId, rules), outlier: false, softFailed: false },
      rejectedReason: undefined,
    } as StoredEvent;
    let isThere = true;
    const many = async () => new Map(isThere ? [[invite.eventId, stored]] : []);
    const texts = new EventTexts({ many } as unknown as EventStore, Config.fromObject({}));
    const text = async () => (await texts.of([invite.eventId])).get(invite.eventId);
    expect(JSON.parse((await text())!)).toEqual(invite.pdu);
    // It is read anew once it may have been redacted or deleted without a word to this process.
    isThere = false;
    expect(await text()).toBeDefined();
    texts.forgetAll();
    expect(await text()).toBeUndefined();
  });
});
