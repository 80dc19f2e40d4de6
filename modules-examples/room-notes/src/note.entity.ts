import { Column, Entity, Index, PrimaryGeneratedColumn } from 'typeorm';

/** What somebody wrote down about a room. */
@Entity('notes')
@Index(['roomId', 'createdTs'])
export class Note {
  @PrimaryGeneratedColumn()
  id!: number;

  @Column({ name: 'room_id', type: 'text' })
  roomId!: string;

  @Column({ name: 'user_id', type: 'text' })
  userId!: string;

  @Column({ type: 'text' })
  text!: string;

  @Column({ type: 'boolean', default: false })
  pinned!: boolean;

  /** Milliseconds since the epoch. */
  @Column({ name: 'created_ts', type: 'bigint', transformer: { from: Number, to: (value: number) => value } })
  createdTs!: number;
}
