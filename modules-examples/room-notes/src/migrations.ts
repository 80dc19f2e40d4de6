import { type MigrationInterface, type QueryRunner, Table, TableColumn, TableIndex } from 'typeorm';

class CreateNotes implements MigrationInterface {
  async up(runner: QueryRunner): Promise<void> {
    const columns = [
      { name: 'id', type: 'integer', isPrimary: true, isGenerated: true, generationStrategy: 'increment' as const },
      { name: 'room_id', type: 'text' },
      { name: 'user_id', type: 'text' },
      { name: 'text', type: 'text' },
      { name: 'created_ts', type: 'bigint' },
    ];
    await runner.createTable(new Table({ name: 'notes', columns }));
    await runner.createIndex('notes', new TableIndex({ columnNames: ['room_id', 'created_ts'] }));
  }

  async down(): Promise<void> {}
}

class PinNotes implements MigrationInterface {
  async up(runner: QueryRunner): Promise<void> {
    const pinned = new TableColumn({ name: 'pinned', type: 'boolean', default: false, isNullable: false });
    await runner.addColumn('notes', pinned);
  }

  async down(): Promise<void> {}
}

/** What makes the tables, in order. */
export const migrations = [CreateNotes, PinNotes];
