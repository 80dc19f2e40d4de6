import { FakeClock } from '@rookery/testing';
import { FloodedRooms } from './flooded-rooms.js';

describe('rooms into which many more events come than into others', () => {
  it('are flooded for as long as they come', async () => {
    const clock = new FakeClock();
    const flooded = new FloodedRooms(clock);
    flooded.add('!quiet', 5);
    flooded.add('!busy', 49);
    expect([flooded.has('!busy'), flooded.has('!unknown')]).toEqual([false, false]);
    flooded.add('!busy', 1);
    expect([flooded.has('!busy'), flooded.has('!quiet')]).toEqual([true, false]);
    // As fast as they are answered, which is slower now.
    for (let n = 0; n < 10; n++) {
      await clock.advance(1_000);
      flooded.add('!busy', 20);
      expect(flooded.has('!busy')).toBe(true);
    }
    await clock.advance(4_000);
    expect(flooded.has('!busy')).toBe(false);
  });

  it('are none where as many come into most others', async () => {
    const clock = new FakeClock();
    const flooded = new FloodedRooms(clock);
    const rooms = Array.from({ length: 50 }, (_, n) => `!${n}`);
    for (let n = 0; n < 20; n++) {
      await clock.advance(600);
      for (const roomId of rooms) flooded.add(roomId, 20);
      flooded.add('!more', 200);
    }
    expect(rooms.filter((roomId) => flooded.has(roomId))).toEqual([]);
    expect(flooded.has('!more')).toBe(true);
  });

  it('are flooded where they are many, too', async () => {
    const clock = new FakeClock();
    const flooded = new FloodedRooms(clock);
    for (let n = 0; n < 4; n++) {
      await clock.advance(600);
      for (let k = 0; k < 40; k++) flooded.add(`!quiet${k}`, 2);
      for (let k = 0; k < 80; k++) flooded.add(`!busy${k}`, 50);
    }
    expect([flooded.has('!busy7'), flooded.has('!quiet7')]).toEqual([true, false]);
  });
});
