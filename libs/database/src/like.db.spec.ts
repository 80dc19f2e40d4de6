import { eachDatabase, type TestDatabase } from '@rookery/testing';
import { holdsText } from './index.js';

eachDatabase('a text in a column', (open) => {
  let test: TestDatabase;

  beforeAll(async () => {
    test = await open();
    await test.database.write(async (tx) => {
      await tx.exec('CREATE TABLE rooms_by_name (name TEXT, alias TEXT)');
      await tx.insertMany(
        'rooms_by_name',
        ['name', 'alias'],
        [
          ['Übungsraum für Größen', '#ueben:a.test'],
          ['ЧАТ О ШАХМАТАХ', null],
          ['100%_sure', '#sure:a.test'],
          ['Plain Name', '#Chess:a.test'],
        ],
      );
    });
  });
  afterAll(() => test.close());

  const found = async (text: string, columns: Parameters<typeof holdsText>[0] = ['name']): Promise<unknown[]> => {
    const { sql, params } = holdsText(columns, text);
    return (await test.database.query<{ name: string }>(`SELECT name FROM rooms_by_name WHERE ${sql}`, params)).map(
      ({ name }) => name,
    );
  };

  it.each([
    ['übungsraum', 'Übungsraum für Größen'],
    ['ÜBUNGSRAUM', 'Übungsraum für Größen'],
    ['Übungsraum F', 'Übungsraum für Größen'],
    ['größen', 'Übungsraum für Größen'],
    ['чат о', 'ЧАТ О ШАХМАТАХ'],
    ['Чат О', 'ЧАТ О ШАХМАТАХ'],
    ['plain', 'Plain Name'],
    ['NAME', 'Plain Name'],
    ['100%_SURE', '100%_sure'],
  ])('is found in either case: %s', async (text, name) => {
    expect(await found(text)).toEqual([name]);
  });

  it('stands for itself, and for no pattern', async () => {
    expect(await found('0%s')).toEqual([]);
    expect(await found('%')).toEqual(['100%_sure']);
    expect(await found('_')).toEqual(['100%_sure']);
  });

  it('is looked for in all columns, with what may stand around it there', async () => {
    expect(await found('chess', ['name', ['alias', '#%', '%:%']])).toEqual(['Plain Name']);
    expect(await found('a.test', ['name', ['alias', '#%', '%:%']])).toEqual([]);
  });
});
