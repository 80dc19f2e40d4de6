import { Module } from '@nestjs/common';
import { OriginTurns } from './origin-turns.js';

/** Turns of what other servers cause: one for all that is done for them. */
@Module({ providers: [OriginTurns], exports: [OriginTurns] })
export class TurnsModule {}
