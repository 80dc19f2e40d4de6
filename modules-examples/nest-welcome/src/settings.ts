import { IsInt, IsString, Matches, Max, MaxLength, Min } from 'class-validator';

/** The `config` of the module's entry. */
export class Settings {
  /** Localpart of the local user who sends the welcome; has to be in the room. */
  @Matches(/^[a-z0-9._=/+-]+$/)
  sender!: string;

  @IsString()
  @MaxLength(1000)
  text = 'Welcome!';

  /** So many are welcomed at once. */
  @IsInt()
  @Min(1)
  @Max(20)
  concurrency = 4;
}
