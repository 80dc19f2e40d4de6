import { idsOfRooms, StateIds } from './state-ids.js';

describe('StateIds', () => {
  const base = new Map([
    ['name', '$1'],
    ['topic', '$2'],
    ['member a', '$3'],
    ['member b', '$4'],
  ]);
  const isMember = (key: string): boolean => key.startsWith('member');

  const idsIn = (values: Iterable<string | undefined>): string[] => [...values].filter((id) => id !== undefined);

  it('says what is different, and leaves the state below as it is', () => {
    const ids = new StateIds(base);
    ids.set('name', '$5');
    ids.set('avatar', '$6');
    ids.delete('topic');
    ids.delete('avatar');
    ids.set('avatar', '$7');
    expect(idsIn(ids.values()).toSorted()).toEqual(['$3', '$4', '$5', '$7']);
    expect(['name', 'topic', 'member a', 'other'].map((key) => ids.get(key))).toEqual([
      '$5',
      undefined,
      '$3',
      undefined,
    ]);
    expect([...base.values()]).toEqual(['$1', '$2', '$3', '$4']);
  });

  it('leaves keys out, wherever they come from, but for those that are set later', () => {
    const ids = new StateIds(base);
    ids.set('member c', '$5');
    ids.leaveOut(isMember);
    expect(idsIn(ids.values())).toEqual(['$1', '$2']);
    // Nobody who reads them goes through all of a room without a turn for others.
    expect([...ids.values()]).toHaveLength(4);
    expect(ids.get('member a')).toBeUndefined();
    ids.set('member b', '$4');
    ids.leaveOut((key) => key === 'topic');
    expect(idsIn(ids.values())).toEqual(['$1', '$4']);
  });

  it('is read room by room, as it is then', () => {
    const [one, two] = [new StateIds(base), new StateIds()];
    const ids = idsOfRooms(new Map([['!one', one]]).set('!two', two));
    expect(ids.next().value).toBe('$1');
    two.set('name', '$8');
    expect([...ids]).toEqual(['$2', '$3', '$4', '$8']);
  });
});
