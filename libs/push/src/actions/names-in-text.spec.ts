import { NameIndex } from './names-in-text.js';

describe('names in a text', () => {
  const index = new NameIndex();
  const names = ['Anna Schmidt', 'Анна', 'Žofie K.', '*', 'a', 'Dr. No', 'x y', '🦆', '', '  ', "O'Neil?"];
  for (const name of names) index.add(`@${name}:h`, name);

  it.each<[string, string[]]>([
    ['hello anna schmidt!', ['Anna Schmidt']],
    ['hello anna-schmidt', []],
    ['Schmidt', []],
    ['anna schmidts', []],
    ['Привет АННА, что?', ['Анна']],
    ['Joannaанна', ['Анна']],
    ['žofie k.', ['Žofie K.']],
    ['žofie kx', []],
    ['5 * 3 is a lot', ['*', 'a']],
    ['dr. no', ['Dr. No']],
    ['dr. nobody', []],
    ['x y z', ['x y']],
    ['xx y', []],
    ['🦆🦆', ['🦆']],
    ["o'neil?", ["O'Neil?"]],
    ["o'neils", []],
    ['', []],
  ])('%j: %j', (text, expected) => {
    expect([...index.usersIn(text)].toSorted()).toEqual(expected.map((name) => `@${name}:h`).toSorted());
  });

  it('finds whom a name means, nobody where it is that of a crowd, and a bounded number', () => {
    const crowd = new NameIndex();
    for (let one = 0; one < 5_000; one++) {
      crowd.add(`@${one}:h`, 'the');
      crowd.add(`@${one}:h`, `the ${one}th`);
    }
    expect(crowd.size).toBe(10_000);
    expect([...crowd.usersIn('the 4999th duck')]).toEqual(['@4999:h']);
    const all = Array.from({ length: 5_000 }, (_, one) => `the ${one}th`).join(' ');
    expect(crowd.usersIn(all).size).toBe(100);
  });
});
